//! What reading and preparing a page ask of the allocator. One test, since the allocator counts for
//! the whole program.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../benches/support/counting.rs"]
mod counting;
#[path = "../benches/support/mod.rs"]
mod support;

use counting::counted;
use support::{generated_page, prepare, read, real_page};

/// Allocations, and the peak with the page's text in it as parts of the page.
fn cost<T>(text: &[u8], work: impl FnOnce() -> T) -> (usize, f64) {
    let (kept, asked) = counted(work);
    drop(kept);
    let peak = (asked.peak + text.len()) as f64 / text.len() as f64;
    (asked.allocations, peak)
}

#[test]
fn memory_does_not_grow_with_every_sample() {
    // The counter counts.
    let (kept, asked) = counted(|| (vec![0u8; 1000], Box::new(1u64)));
    drop(kept);
    assert_eq!((asked.allocations, asked.peak), (2, 1008));

    let [small, double, large] = [6_250, 12_500, 100_000].map(generated_page);

    let reads = [&small, &double, &large].map(|text| cost(text, || read(text)));
    let (few, more, most) = (reads[0].0, reads[1].0, reads[2].0);
    // Only lists whose length isn't known before may grow, and they do by doubling.
    assert!(
        more <= few + 3 && most <= few + 3 * 4,
        "reading 6,250, 12,500 and 100,000 samples: {few}, {more} and {most} allocations"
    );
    let peak = reads[2].1;
    assert!(peak < 3.0, "reading takes {peak:.2} times the page");
    println!("reading: {few}, {more}, {most} allocations; {peak:.2} times the page at most");

    let spellings: [(&str, Spelled); 3] = [
        ("as Python spells bounds", str::to_owned),
        ("as Go and Rust do", |le| {
            le.strip_suffix(".0").unwrap_or(le).to_owned()
        }),
        ("as nobody does", |le| format!("{le}0")),
    ];
    for (who, spelled) in spellings {
        let pages = [&small, &double, &large].map(|text| respelled(text, spelled));
        let all = pages.map(|text| cost(&text, || prepare(&read(&text))));
        let (few, more, most) = (all[0].0, all[1].0, all[2].0);
        assert!(
            more <= few + 8 && most <= few + 8 * 4,
            "{who}, reading and preparing 6,250, 12,500 and 100,000 samples: {few}, {more} and {most} allocations"
        );
        let peak = all[2].1;
        assert!(
            peak < 3.0,
            "{who}, reading and preparing takes {peak:.2} times the page"
        );
        println!(
            "{who}, and preparing: {few}, {more}, {most} allocations; {peak:.2} times the page at most"
        );
    }
    let real = real_page();
    let (_, peak) = cost(&real, || prepare(&read(&real)));
    assert!(peak < 3.0, "the real page takes {peak:.2} times its size");
    println!("the real page: {peak:.2} times its size at most");
}

/// Another spelling of a bound.
type Spelled = fn(&str) -> String;

/// The page with the bounds of its buckets in another spelling.
fn respelled(page: &[u8], spelled: Spelled) -> Vec<u8> {
    let mut out = String::new();
    for line in std::str::from_utf8(page).unwrap().lines() {
        let bound = line.split_once("le=\"").and_then(|(before, rest)| {
            let (le, after) = rest.split_once('"')?;
            (le != "+Inf").then_some((before, le, after))
        });
        match bound {
            Some((before, le, after)) => {
                out.push_str(&format!("{before}le=\"{}\"{after}\n", spelled(le)));
            }
            None => out.push_str(&format!("{line}\n")),
        }
    }
    out.into_bytes()
}
