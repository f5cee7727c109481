use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn request(prompt: u64, output: u64) -> Request {
    Request {
        prompt,
        output,
        prefix: None,
        stream: true,
        room: None,
        dp_rank: None,
    }
}

fn gauge(engine: &mut Engine, name: &str) -> Option<f64> {
    engine
        .render()
        .lines()
        .find(|line| {
            line.starts_with(&format!("sglang:{name}{{")) && line.contains("tp_rank=\"0\"")
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

fn sum(engine: &Engine) -> u64 {
    let pool = &engine.pool;
    pool.free() + pool.held() + pool.arriving() + pool.evictable()
}

#[test]
fn a_unified_engine_fills_with_its_requests_and_drains_after_them() {
    let mut engine = Engine::new(EngineConfig::new(Role::Unified, "m"));
    for _ in 0..4 {
        engine.submit(MS(0), request(10_000, 200)).unwrap();
    }
    engine.advance(MS(1_500));
    let loads = engine.loads();
    assert_eq!(loads.num_running_reqs, 4);
    assert!(
        (40_000..41_000).contains(&loads.num_used_tokens),
        "{loads:?}"
    );
    engine.advance(MS(60_000));
    let loads = engine.loads();
    assert_eq!((loads.num_running_reqs, loads.num_used_tokens), (0, 0));
    let events = engine.take_events();
    let ends = |e: &&Event| matches!(e, Event::Finished { .. });
    let tokens = |e: &&Event| matches!(e, Event::Tokens { .. });
    assert_eq!(events.iter().filter(ends).count(), 4);
    assert_eq!(events.iter().filter(tokens).count(), 800);
    // What they computed stays as a prefix cache.
    assert!(gauge(&mut engine, "kv_evictable_tokens").unwrap() >= 40_000.0);
    assert_eq!(gauge(&mut engine, "kv_used_tokens"), Some(0.0));
}

#[test]
fn gauges_come_with_the_first_batch_not_before() {
    let mut engine = Engine::new(EngineConfig::new(Role::Unified, "m"));
    engine.advance(MS(29_000));
    assert_eq!(gauge(&mut engine, "token_usage"), None);
    assert_eq!(
        gauge(&mut engine, "max_total_num_tokens"),
        Some(2_581_504.0)
    );
    engine.submit(MS(29_000), request(100, 10)).unwrap();
    assert_eq!(gauge(&mut engine, "token_usage"), Some(0.0));
    // Two pages of 64.
    assert_eq!(gauge(&mut engine, "kv_used_tokens"), Some(128.0));
}

#[test]
fn an_idle_engine_publishes_by_itself_every_30_seconds() {
    let mut engine = Engine::new(EngineConfig::new(Role::Decode, "m"));
    engine.advance(MS(29_999));
    assert_eq!(gauge(&mut engine, "num_running_reqs"), None);
    engine.advance(MS(30_000));
    assert_eq!(gauge(&mut engine, "num_running_reqs"), Some(0.0));
    assert_eq!(
        gauge(&mut engine, "scheduler_idle_seconds_total"),
        Some(30.0)
    );
    engine.advance(MS(59_999));
    assert_eq!(
        gauge(&mut engine, "scheduler_idle_seconds_total"),
        Some(30.0)
    );
    engine.advance(MS(60_000));
    assert_eq!(
        gauge(&mut engine, "scheduler_idle_seconds_total"),
        Some(60.0)
    );
}

#[test]
fn a_decode_engine_publishes_every_40th_step_and_when_it_goes_idle() {
    let mut engine = Engine::new(EngineConfig {
        alone: true,
        ..EngineConfig::new(Role::Decode, "m")
    });
    let request = Request {
        room: Some(1),
        ..request(50_000, 100)
    };
    engine.submit(MS(0), request).unwrap();
    // Running, but fewer than 40 steps: still no gauge, as on a real decode server.
    engine.advance(MS(1_000));
    assert_eq!(engine.loads().num_running_reqs, 1);
    assert_eq!(gauge(&mut engine, "kv_used_tokens"), None);
    engine.advance(MS(2_000));
    let first = gauge(&mut engine, "kv_used_tokens").unwrap();
    assert!((50_000.0..50_200.0).contains(&first), "{first}");
    assert_eq!(gauge(&mut engine, "num_running_reqs"), Some(1.0));
    while engine.loads().num_running_reqs > 0 {
        let at = engine.next_wake().unwrap();
        engine.advance(at);
    }
    assert_eq!(gauge(&mut engine, "kv_used_tokens"), Some(0.0));
    assert_eq!(gauge(&mut engine, "gen_throughput"), Some(0.0));
}

#[test]
fn usage_is_rounded_where_the_real_one_rounds() {
    let mut engine = Engine::new(EngineConfig::new(Role::Unified, "m"));
    engine.submit(MS(0), request(12_034, 8)).unwrap();
    assert_eq!(gauge(&mut engine, "token_usage"), Some(0.0));
    let exact = gauge(&mut engine, "full_token_usage").unwrap();
    let used = gauge(&mut engine, "kv_used_tokens").unwrap();
    assert!(exact > 0.0046 && exact < 0.0048);
    assert_eq!(exact, used / 2_581_504.0);
}

/// Prefill and decode with their hand-over, as the driver does it.
fn hand_over(prefill: &mut Engine, decode: &mut Engine, now: Duration) {
    loop {
        let (p, d) = (prefill.take_events(), decode.take_events());
        if p.is_empty() && d.is_empty() {
            return;
        }
        for event in d {
            match event {
                Event::Preallocated { room } => prefill.peer_ready(now, room),
                Event::Aborted { room } => prefill.abort_room(now, room),
                _ => {}
            }
        }
        for event in p {
            match event {
                Event::KvSent { room } => decode.kv_arrived(now, room),
                Event::Aborted { room } => decode.abort_room(now, room),
                _ => {}
            }
        }
    }
}

fn pair() -> (Engine, Engine) {
    (
        Engine::new(EngineConfig::new(Role::Prefill, "m")),
        Engine::new(EngineConfig::new(Role::Decode, "m")),
    )
}

#[test]
fn prefill_hands_over_to_decode() {
    let (mut prefill, mut decode) = pair();
    let request = Request {
        room: Some(77),
        ..request(60_000, 50)
    };
    // The order in which a router's two posts arrive is not known.
    decode.submit(MS(0), request).unwrap();
    assert_eq!(decode.loads().decode_transfer_queue_reqs, 1);
    hand_over(&mut prefill, &mut decode, MS(0));
    prefill.submit(MS(1), request).unwrap();
    assert_eq!(prefill.loads().prefill_bootstrap_queue_reqs, 1);
    let mut seen = (0, 0);
    for ms in 1..5_000 {
        prefill.advance(MS(ms));
        decode.advance(MS(ms));
        hand_over(&mut prefill, &mut decode, MS(ms));
        seen.0 = seen.0.max(prefill.loads().prefill_inflight_queue_reqs);
        seen.1 = seen.1.max(decode.loads().num_running_reqs);
    }
    assert_eq!(seen, (1, 1));
    assert_eq!(decode.loads().num_used_tokens, 0);
    assert_eq!(prefill.loads().num_used_tokens, 0);
    let page = prefill.render();
    assert!(page.contains("sglang:kv_transfer_latency_ms_count"));
    assert_eq!(gauge(&mut prefill, "utilization"), Some(-1.0));
    // A prefill engine makes one token of each.
    assert!(page.contains("generation_tokens_total{engine_type=\"prefill\",is_streaming=\"true\",model_name=\"m\"} 1.0"));
}

#[test]
fn kv_that_is_arriving_is_not_used_yet() {
    let (mut prefill, mut decode) = pair();
    let room = |room, prompt| Request {
        room: Some(room),
        ..request(prompt, 400)
    };
    decode.submit(MS(0), room(1, 20_000)).unwrap();
    prefill.submit(MS(0), room(1, 20_000)).unwrap();
    for ms in 0..1_000 {
        prefill.advance(MS(ms));
        decode.advance(MS(ms));
        hand_over(&mut prefill, &mut decode, MS(ms));
    }
    assert_eq!(decode.loads().num_running_reqs, 1);
    // The second one's prefill never comes.
    decode.submit(MS(1_000), room(2, 64_000)).unwrap();
    decode.advance(MS(3_000));
    let used = gauge(&mut decode, "kv_used_tokens").unwrap();
    assert!((20_000.0..21_000.0).contains(&used), "{used}");
    let arriving = gauge(&mut decode, "prealloc_full_token_usage").unwrap();
    assert_eq!(arriving, 64_000.0 / 2_581_504.0);
    assert_eq!(
        gauge(&mut decode, "num_decode_transfer_queue_reqs"),
        Some(1.0)
    );
}

#[test]
fn an_abort_takes_the_other_half_with_it() {
    let (mut prefill, mut decode) = pair();
    let request = Request {
        room: Some(5),
        ..request(100_000, 400)
    };
    let id = decode.submit(MS(0), request).unwrap();
    let other = prefill.submit(MS(0), request).unwrap();
    hand_over(&mut prefill, &mut decode, MS(0));
    prefill.advance(MS(50));
    decode.abort(MS(50), id);
    let aborted = decode.take_events();
    assert!(aborted.contains(&Event::Aborted { room: 5 }));
    prefill.abort_room(MS(50), 5);
    assert!(prefill.take_events().contains(&Event::Failed { id: other }));
    for engine in [&mut prefill, &mut decode] {
        engine.advance(MS(1_000));
        let loads = engine.loads();
        assert_eq!(loads.num_used_tokens, 0);
        assert_eq!(engine.pool.arriving(), 0);
        assert_eq!(engine.promised, 0);
        assert!(engine.rooms.is_empty() && engine.jobs.is_empty());
    }
}

#[test]
fn requests_wait_when_the_pool_is_full_and_it_is_never_exceeded() {
    let mut engine = Engine::new(EngineConfig {
        capacity: 64_000,
        ..EngineConfig::new(Role::Unified, "m")
    });
    for _ in 0..20 {
        engine.submit(MS(0), request(9_000, 900)).unwrap();
    }
    let mut fullest = 0;
    for ms in (0..180_000).step_by(50) {
        engine.advance(MS(ms));
        let loads = engine.loads();
        assert!(loads.num_used_tokens <= 64_000);
        assert_eq!(sum(&engine), 1_000);
        fullest = fullest.max(loads.num_used_tokens);
        if ms == 2_000 {
            // 155 pages each, of 1,000.
            assert_eq!((loads.num_running_reqs, loads.num_waiting_reqs), (6, 14));
        }
    }
    assert!(fullest > 54_000, "{fullest}");
    assert!(engine.jobs.is_empty());
    assert_eq!(engine.promised, 0);
    assert!(engine.render().contains("sglang:evicted_tokens_total"));
}

/// As SGLang does it: admitted with room for a part of the output, retracted when the pool runs out,
/// resumed before others get any room; nobody loses a token.
#[test]
fn who_outgrows_its_room_takes_it_from_others_which_go_on_later() {
    let mut engine = Engine::new(EngineConfig {
        capacity: 64_000,
        alone: true,
        reserved_output: Some(64),
        ..EngineConfig::new(Role::Decode, "m")
    });
    let mut ids = Vec::new();
    for room in 0..12 {
        let request = Request {
            room: Some(room),
            ..request(9_000, 2_000)
        };
        ids.push(engine.submit(MS(0), request).unwrap());
    }
    let (mut fullest, mut retracted, mut finished) = (0, 0, Vec::new());
    let mut tokens = std::collections::HashMap::new();
    for ms in (0..400_000).step_by(50) {
        engine.advance(MS(ms));
        let loads = engine.loads();
        assert!(loads.num_used_tokens <= 64_000);
        assert_eq!(sum(&engine), 1_000);
        fullest = fullest.max(loads.num_used_tokens);
        retracted = retracted.max(loads.decode_retracted_queue_reqs);
        for event in engine.take_events() {
            match event {
                Event::Tokens { id, total, .. } => {
                    assert_eq!(tokens.insert(id, total).unwrap_or(0) + 1, total);
                }
                Event::Finished { id } => finished.push(id),
                _ => {}
            }
        }
    }
    assert!(fullest > 63_000, "{fullest}");
    assert!(retracted > 0);
    assert!(gauge(&mut engine, "num_retracted_requests_total").unwrap() > 0.0);
    finished.sort_unstable();
    assert_eq!(finished, ids);
    assert!(tokens.values().all(|total| *total == 2_000));
    assert!(engine.jobs.is_empty() && engine.retracted.is_empty());
    assert_eq!((engine.promised, engine.pool.held()), (0, 0));
}

#[test]
fn what_cannot_fit_is_refused_and_so_is_what_comes_to_a_full_queue() {
    let mut engine = Engine::new(EngineConfig {
        max_queued: 2,
        max_running: 1,
        ..EngineConfig::new(Role::Unified, "m")
    });
    assert_eq!(
        engine.submit(MS(0), request(163_840, 1)),
        Err(Refused::TooLong {
            asked: 163_841,
            limit: 163_840
        })
    );
    assert!(engine.submit(MS(0), request(u64::MAX, u64::MAX)).is_err());
    for _ in 0..3 {
        engine.submit(MS(0), request(10, 1_000)).unwrap();
    }
    assert_eq!(
        engine.submit(MS(0), request(10, 10)),
        Err(Refused::QueueFull)
    );
}

#[test]
fn a_shared_prefix_is_computed_once() {
    let mut engine = Engine::new(EngineConfig::new(Role::Unified, "m"));
    let request = Request {
        prefix: Some(Prefix {
            key: 9,
            tokens: 6_400,
        }),
        ..request(8_000, 10)
    };
    engine.submit(MS(0), request).unwrap();
    engine.advance(MS(5_000));
    engine.submit(MS(5_000), request).unwrap();
    let rate = gauge(&mut engine, "cache_hit_rate").unwrap();
    assert!((rate - 0.8).abs() < 1e-9, "{rate}");
    engine.advance(MS(10_000));
    assert!(engine
        .render()
        .contains("cached_tokens_total{cache_source=\"device\",engine_type=\"unified\",model_name=\"m\"} 6400.0"));
    assert!(engine.flush_cache());
    assert_eq!(engine.pool.evictable(), 0);
    assert_eq!(engine.pool.free(), engine.pool.capacity());
}

#[test]
fn the_same_seed_and_requests_give_the_same_pages() {
    let run = |seed| {
        let mut engine = Engine::new(EngineConfig {
            seed,
            ..EngineConfig::new(Role::Unified, "m")
        });
        let mut pages = Vec::new();
        for i in 0..40u64 {
            let at = MS(i * 300);
            engine.submit(at, request(500 + i * 97, 20 + i)).unwrap();
            engine.advance(at + MS(150));
            pages.push(engine.render());
        }
        pages
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

mod any_traffic {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Submit(Request),
        Abort(usize),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let request = (1u64..3_000, 1u64..200, 0u64..4, 0u64..3_000, any::<bool>());
        let request = request.prop_map(|(prompt, output, key, tokens, stream)| Request {
            prompt,
            output,
            prefix: (key > 0).then_some(Prefix { key, tokens }),
            stream,
            room: None,
            dp_rank: None,
        });
        prop_oneof![
            4 => request.prop_map(Step::Submit),
            1 => (0usize..40).prop_map(Step::Abort),
            2 => (0u64..3_000).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Never above capacity, every request gets its end, and nothing is left behind.
        #[test]
        fn fills_and_drains(
            role in prop_oneof![Just(Role::Unified), Just(Role::Prefill), Just(Role::Decode)],
            steps in proptest::collection::vec(step(), 1..60),
        ) {
            let mut engine = Engine::new(EngineConfig {
                capacity: 6_400,
                prefill_chunk: 1_000,
                prefix_cache: true,
                alone: true,
                ..EngineConfig::new(role, "m")
            });
            let mut now = Duration::ZERO;
            let (mut taken, mut aborted, mut ids) = (0, 0, Vec::new());
            for (room, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Submit(request) => {
                        let request = Request { room: Some(room as u64), ..request };
                        ids.push(engine.submit(now, request).unwrap());
                        taken += 1;
                    }
                    Step::Abort(which) => if let Some(id) = ids.get(which) {
                        engine.abort(now, *id);
                    },
                    Step::Wait(ms) => now += MS(ms),
                }
                engine.advance(now);
                prop_assert_eq!(sum(&engine), 100);
                prop_assert!(engine.promised <= 100);
                prop_assert!(engine.pool.held() + engine.pool.arriving() <= engine.promised);
            }
            engine.advance(now + Duration::from_secs(3_600));
            let mut finished = 0;
            for event in engine.take_events() {
                match event {
                    Event::Finished { .. } => finished += 1,
                    Event::Aborted { .. } => aborted += 1,
                    _ => {}
                }
            }
            prop_assert_eq!(finished + aborted, taken);
            prop_assert!(engine.jobs.is_empty() && engine.rooms.is_empty());
            prop_assert_eq!(engine.promised, 0);
            prop_assert_eq!(engine.pool.held() + engine.pool.arriving(), 0);
            prop_assert_eq!(engine.loads().num_used_tokens, 0);
        }
    }
}
