//! vLLM: V1, V0, and the Ascend fork.
//!
//! | version | usage |
//! |---|---|
//! | V1 since 0.9 | `kv_cache_usage_perc` |
//! | V0, V1 before | `gpu_cache_usage_perc`; in 0.9 both, then hidden |
//! | forks for Ascend | `npu_cache_usage_perc` |
//!
//! All are fractions, despite their names. `engine` is the data-parallel engine, each a pool of its own.
//! With several API processes some versions publish gauges once for each (label `pid`).
//!
//! # Capacity
//! It stands in labels of `cache_config_info`: `kv_cache_size_tokens` is that of one engine. Older
//! versions have only `num_gpu_blocks` and `block_size`, whose product is right where there is one
//! engine (of several, the blocks of all are counted) and one kind of layer (a hybrid model's blocks
//! hold fewer tokens): otherwise the capacity is unknown.
//!
//! # Tokens used
//! No gauge counts them. The usage is a number of blocks over the number of all, of which newer versions
//! keep one for themselves; where that number comes out whole and the size of a block is sure, the
//! blocks' tokens are what is used, exactly. Otherwise it is unknown: a product with the capacity
//! would be off by up to a block. A full pool so holds one block less than its capacity.
//!
//! # Hit rate
//! Only V0 has a gauge. The counters of hits and queries give a rate since the engine's start, which
//! says nothing of now; Prometheus' `rate()` over them does.

use super::gauges::{Gauge, Key, MAX_POOLS, Unit, float, whole};
use super::lacking::{Lacking, NOTHING};
use super::table::{Candidate, Draft, Table, Value};
use crate::exposition::{Page, Sample};
use crate::kv::{Pool, Unknown};

const INFO: &str = "cache_config_info";
const TOKENS: &str = "cache_config_info{kv_cache_size_tokens}";
const PRODUCT: &str = "cache_config_info{num_gpu_blocks} * {block_size}";
const USED: &str = "usage * blocks of cache_config_info";
const COUNTERS: &str = "counters since the engine's start, no rate of now";

pub(super) const TABLE: Table = Table {
    name: "vllm",
    spellings: &["vllm:", "vllm_"],
    // Not `vllm_`: its router's names begin so.
    own: &["vllm:"],
    shown_by: &[],
    model: "model_name",
    rank: "engine",
    gauges: &[
        Gauge::fraction("kv_cache_usage_perc"),
        Gauge::fraction("gpu_cache_usage_perc"),
        Gauge::fraction("npu_cache_usage_perc"),
        Gauge::fraction("cpu_cache_usage_perc"),
        Gauge::requests("num_requests_running"),
        Gauge::requests("num_requests_waiting"),
        Gauge::requests("num_preemptions_total"),
        Gauge::new("gpu_prefix_cache_hit_rate", Unit::FractionIfKept),
    ],
    candidates: &[
        Candidate::is(Value::Usage, "kv_cache_usage_perc", ""),
        Candidate::is(Value::Usage, "gpu_cache_usage_perc", "the older name"),
        Candidate::is(Value::Usage, "npu_cache_usage_perc", "a fork's name"),
        Candidate::is(Value::Running, "num_requests_running", ""),
        Candidate::is(Value::Queued, "num_requests_waiting", ""),
        Candidate::is(Value::Preempted, "num_preemptions_total", ""),
        Candidate::is(Value::HitRate, "gpu_prefix_cache_hit_rate", ""),
        Candidate::is(Value::Host, "cpu_cache_usage_perc", ""),
    ],
    never: &[
        ("hit_rate", "prefix_cache_hits_total", COUNTERS),
        ("hit_rate", "gpu_prefix_cache_hits_total", COUNTERS),
    ],
    shown_only: &[
        INFO,
        "num_requests_swapped",
        "num_requests_waiting_by_reason",
        "prefix_cache_queries_total",
        "gpu_prefix_cache_queries_total",
        "external_prefix_cache_hits_total",
        "external_prefix_cache_queries_total",
    ],
    lacks: &[
        Lacking::yet(
            "usage",
            "it has no KV usage: newer versions publish it from their start, older ones with the first request",
            "send a request through the router (kvgauge doctor --warmup does), then look again; where it \
             stays so, see whether its statistics are off (--disable-log-stats)",
        ),
        Lacking::never(
            "used",
            "no gauge counts tokens, and the usage is not one of whole blocks of a known size",
            NOTHING,
        )
        .beside("usage"),
        Lacking::never(
            "capacity",
            "the labels of cache_config_info do not say for sure how many tokens fit",
            "newer versions say it in the label kv_cache_size_tokens",
        ),
        Lacking::no_fill("vllm publishes none"),
    ],
    then,
};

/// What `cache_config_info` says of one engine.
struct Info {
    key: Key,
    tokens: Option<u64>,
    blocks: Option<u64>,
    block_size: Option<u64>,
    hybrid: bool,
}

// === impl Info ===

impl Info {
    fn of(sample: &Sample<'_, '_>) -> Info {
        let number = |label: &str| {
            let value = sample.label(label)?.parse::<f64>().ok()?;
            whole(value).filter(|n| *n > 0)
        };
        let set = |label: &str| {
            sample
                .label(label)
                .is_some_and(|value| !matches!(&*value, "" | "None" | "0"))
        };
        Info {
            key: Key::of(sample, TABLE.model, TABLE.rank),
            tokens: number("kv_cache_size_tokens"),
            blocks: number("num_gpu_blocks"),
            block_size: number("block_size"),
            hybrid: set("sliding_window") || set("mamba_block_size"),
        }
    }

    /// The engine's blocks, where all sources agree that each holds `block_size` tokens.
    fn sure_blocks(&self, engines: u64) -> Option<u64> {
        let (blocks, size) = (self.blocks?, self.block_size?);
        let own = match self.tokens {
            Some(tokens) if tokens % size == 0 => tokens / size,
            Some(_) => return None,
            None if engines == 1 => blocks,
            None => return None,
        };
        let agreed = blocks == own || Some(blocks) == own.checked_mul(engines);
        (agreed && !self.hybrid).then_some(own)
    }
}

fn then(page: &Page<'_>, draft: &mut Draft) {
    let mut infos: Vec<Info> = page
        .samples(&format!("{}{INFO}", draft.prefix))
        .map(|sample| Info::of(&sample))
        .collect();
    // Of an engine's several processes, the one that says most.
    infos.sort_by(|a, b| {
        let says = |info: &Info| (info.tokens, info.blocks, info.block_size, info.hybrid);
        (&a.key, says(b)).cmp(&(&b.key, says(a)))
    });
    infos.dedup_by(|b, a| a.key == b.key);
    if infos.len() > MAX_POOLS {
        draft.odd.too_many_pools(infos.len() - MAX_POOLS);
        infos.truncate(MAX_POOLS);
    }
    for info in &infos {
        let same_server = |key: &Key| key.worker == info.key.worker;
        let infos = infos.iter().filter(|i| same_server(&i.key)).count();
        let pools = draft.pools.keys().filter(|key| same_server(key)).count();
        let engines = infos.max(pools) as u64;
        // Of several engines, one that is not named may be any, or all together.
        let unnamed = info.key.rank.is_none();
        let only = infos == 1 && pools == 1;
        let mut found = false;
        for (_, pool) in draft
            .pools
            .iter_mut()
            .filter(|(key, _)| same_server(key) && (key.rank == info.key.rank || (only && unnamed)))
        {
            found = true;
            fill_in(info, engines, pool, &mut draft.notes);
        }
        let taken = found || (unnamed && pools > 0);
        if !taken && draft.pools.len() < MAX_POOLS {
            // An engine so fresh that it has none of the gauges.
            let mut pool = Pool::unknown(Unknown::Absent);
            fill_in(info, engines, &mut pool, &mut draft.notes);
            draft.pools.insert(info.key.clone(), pool);
        }
    }
}

fn fill_in(info: &Info, engines: u64, pool: &mut Pool, notes: &mut super::notes::Notes) {
    let blocks = info.sure_blocks(engines);
    let product = info
        .blocks
        .zip(info.block_size)
        .and_then(|(blocks, size)| whole(float(blocks) * float(size)));
    if let Some(tokens) = info.tokens {
        pool.capacity = Some(tokens);
        notes.chose("capacity", TOKENS);
        if product.is_some() {
            let why = "counts all engines' blocks, and is wrong for hybrid models";
            notes.passed("capacity", PRODUCT, why);
        }
    } else if blocks.is_some() && product.is_some() {
        pool.capacity = product;
        notes.chose("capacity", PRODUCT);
    } else if product.is_some() {
        let why = if info.hybrid {
            "wrong for hybrid models"
        } else {
            "counts the blocks of all engines together"
        };
        notes.passed("capacity", PRODUCT, why);
    }
    let (Ok(usage), Some(blocks), Some(size)) = (pool.usage, blocks, info.block_size) else {
        return;
    };
    match used_blocks(usage, blocks).and_then(|n| whole(float(n) * float(size))) {
        Some(used) => {
            pool.used = Some(used);
            notes.chose("used", USED);
        }
        None => notes.passed("used", USED, "does not come out as whole blocks"),
    }
}

/// The number of blocks of which `usage` is the share; newer versions count one block less than there
/// are.
fn used_blocks(usage: f64, blocks: u64) -> Option<u64> {
    [blocks.saturating_sub(1), blocks]
        .into_iter()
        .find_map(|of| {
            let used = usage * float(of);
            // Far above the float's error, far below a block.
            ((used - used.round()).abs() < 1e-6).then(|| whole(used))?
        })
}

#[cfg(test)]
mod tests {
    use super::used_blocks;

    #[test]
    fn blocks_used_come_out_whole_or_not_at_all() {
        for (usage, blocks, used) in [
            (0.0, 64, Some(0)),
            (28.0 / 63.0, 64, Some(28)),
            (1.0, 64, Some(63)),
            (12.0 / 36_464.0, 36_464, Some(12)),
            (36_463.0 / 36_464.0, 36_464, Some(36_463)),
            (0.44, 64, None),
            (0.4444, 64, None),
        ] {
            assert_eq!(used_blocks(usage, blocks), used, "{usage} of {blocks}");
        }
    }
}
