//! The files of `config/` that other programs read, held against these programs: systemd's units,
//! Kubernetes' manifests, those of the Prometheus Operator. How a pod ends: `tests/real_pod.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use support::kvgauge::run;
use support::program::{Program, free_port, node_script, python};
use support::{Client, Page, Setup, Upstream, eventually, get};

const NEEDED: &str = "needs systemd-analyze and kubernetes-validate: tests/run";

fn config(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(path)
}

/// The units, with this program in place of the installed one.
fn units() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["kvgauge.service", "kvgauge.socket"] {
        let text = fs::read_to_string(config("systemd").join(name)).unwrap();
        let text = text.replace("/usr/local/bin/kvgauge", env!("CARGO_BIN_EXE_kvgauge"));
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
#[ignore = "needs systemd-analyze: tests/run"]
fn systemd_takes_the_units_without_a_word() {
    let units = units();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "kvgauge.service", "kvgauge.socket"])
        .current_dir(units.path())
        .env("SYSTEMD_UNIT_PATH", format!("{}:", units.path().display()))
        .output()
        .expect(NEEDED);
    assert!(output.status.success(), "{}", said(&output));
    let words: Vec<String> = said(&output)
        .lines()
        .filter(|line| line.contains("kvgauge"))
        .map(str::to_owned)
        .collect();
    assert_eq!(words, Vec::<String>::new());
}

/// Else `systemd-analyze verify` ends with 1 where it asks `man`.
#[test]
fn the_manual_pages_that_the_unit_names_are_installed_with_it() {
    let unit = fs::read_to_string(config("systemd/kvgauge.service")).unwrap();
    let documentation = unit
        .lines()
        .find_map(|line| line.strip_prefix("Documentation="));
    let install = "install -D -m 644 -t /usr/local/share/man/man1 docs/man/*.1";
    assert!(unit.contains(install));
    for page in documentation.unwrap().split(' ') {
        let name = page.strip_prefix("man:").unwrap();
        let name = name.strip_suffix("(1)").unwrap();
        let file = config("../docs/man").join(format!("{name}.1"));
        assert!(file.is_file(), "no {}", file.display());
    }
}

#[test]
#[ignore = "needs systemd-analyze: tests/run"]
fn the_service_is_locked_up() {
    let units = units();
    // In tenths; a unit that says nothing has 96.
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=15", "--no-pager"])
        .arg(units.path().join("kvgauge.service"))
        .output()
        .expect(NEEDED);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("Overall exposure level"),
        "{}",
        said(&output)
    );
}

#[test]
#[ignore = "needs systemd-socket-activate: tests/run"]
fn systemd_passes_its_sockets() {
    let upstream = Upstream::ok();
    let page = Page::refusing();
    let [listen, admin] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let mut command = Command::new("systemd-socket-activate");
    command
        .args(["-l", &listen.to_string(), "-l", &admin.to_string()])
        .args([
            "--fdname",
            "listen:admin",
            env!("CARGO_BIN_EXE_kvgauge"),
            "serve",
        ])
        // Nobody can bind these.
        .args([
            "--listen",
            "192.0.2.1:1",
            "--admin",
            "192.0.2.1:2",
            "--workers",
            "1",
        ])
        .args(["--upstream", &format!("http://{}", upstream.address())])
        .args(["--source", &format!("a={}", page.url())]);
    let program = Program::start("systemd-socket-activate", &mut command);
    // It starts kvgauge for the first who comes.
    let _first = eventually("it listens", || Client::try_connect(listen).ok());
    assert_eq!(get(listen, "/").status(), 200);
    assert_eq!(get(admin, "/healthz").status(), 200);
    eventually("it is said", || {
        program
            .errors()
            .contains("listen = 192.0.2.1:1 is not used")
            .then_some(())
    });
}

/// The documents of a file.
fn documents(path: &str) -> Vec<Value> {
    let code =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let output = Command::new(python())
        .args(["-c", code])
        .arg(config(path))
        .output()
        .expect(NEEDED);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The settings in the ConfigMap.
fn shipped_settings(sidecar: &[Value]) -> String {
    let map = &of_kind(sidecar, "ConfigMap")["data"];
    map["kvgauge.toml"].as_str().unwrap().to_owned()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let found = documents.iter().find(|d| d["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
#[ignore = "needs kubernetes-validate: tests/run"]
fn kubernetes_takes_the_manifests() {
    let program = Path::new(&python()).with_file_name("kubernetes-validate");
    // The first that has sidecars and a hook that sleeps for everybody, and the newest that the validator
    // knows.
    for version in ["1.30", ""] {
        let mut command = Command::new(&program);
        if !version.is_empty() {
            command.args(["-k", version]);
        }
        let output = command
            .arg("--strict")
            .arg(config("kubernetes/sidecar.yaml"))
            .output()
            .expect(NEEDED);
        assert!(output.status.success(), "{version}: {}", said(&output));
    }
}

#[test]
#[ignore = "needs PyYAML: tests/run"]
fn the_manifests_fit_each_other_and_kvgauge() {
    let all = documents("kubernetes/sidecar.yaml");
    let text = shipped_settings(&all);
    let flags = kvgauge::config::Flags::default();
    let (settings, warnings) =
        kvgauge::config::load_text(Path::new("kvgauge.toml"), &text, [], &flags).unwrap();
    assert_eq!(warnings, []);

    let deployment = of_kind(&all, "Deployment");
    assert!(deployment["spec"]["replicas"].as_u64().unwrap() > 1);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["enableServiceLinks"], false);
    // kvgauge starts before the router, and lives with it.
    let own = &pod["initContainers"][0];
    assert_eq!(own["name"], "kvgauge");
    assert_eq!(own["restartPolicy"], "Always");
    let router = &pod["containers"][0];
    assert_eq!(router["name"], "router");
    assert!(router["readinessProbe"].is_object());
    let port = |name: &str| {
        let ports = own["ports"].as_array().unwrap().iter();
        let mut named = ports.filter(|port| port["name"] == name);
        named.next().unwrap()["containerPort"].as_u64().unwrap()
    };
    assert_eq!(port("http"), u64::from(settings.listen.port()));
    assert_eq!(port("metrics"), u64::from(settings.admin.listen.port()));
    // The kubelet asks at the pod's address.
    assert!(settings.listen.ip().is_unspecified() && settings.admin.listen.ip().is_unspecified());
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
        ("livenessProbe", "/healthz"),
    ] {
        assert_eq!(own[probe]["httpGet"]["path"], path);
        assert_eq!(own[probe]["httpGet"]["port"], "metrics");
    }
    let args = router["args"].as_array().unwrap();
    let wanted = format!("--port={}", settings.upstream.port);
    assert!(args.iter().any(|arg| *arg == wanted.as_str()), "{wanted}");
    let source = settings
        .sources
        .iter()
        .find(|s| &*s.name == "router")
        .unwrap();
    let wanted = format!("--prometheus-port={}", source.url.port);
    assert!(args.iter().any(|arg| *arg == wanted.as_str()), "{wanted}");
    let file = own["args"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .as_str()
        .unwrap();
    let folder = own["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert_eq!(file, format!("{folder}/kvgauge.toml"));
    for container in [router, own] {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"][0], "ALL");
    }
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );

    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let notes = &deployment["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(notes["prometheus.io/port"], port("metrics").to_string());
    assert_eq!(notes["prometheus.io/path"], "/metrics");
    assert_eq!(
        of_kind(&all, "Service")["spec"]["ports"][0]["targetPort"],
        port("http")
    );
    assert_eq!(&of_kind(&all, "Service")["spec"]["selector"], labels);

    let monitors = documents("kubernetes/podmonitor.yaml");
    let monitor = of_kind(&monitors, "PodMonitor");
    assert_eq!(monitor["apiVersion"], "monitoring.coreos.com/v1");
    assert_eq!(&monitor["spec"]["selector"]["matchLabels"], labels);
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(
        (&endpoint["port"], &endpoint["path"]),
        (&"metrics".into(), &"/metrics".into())
    );
}

/// The order of a pod's end: kvgauge takes no new request any more when the router's listener closes, and
/// neither is killed, nor cuts, before the drain is over.
#[test]
#[ignore = "needs PyYAML: tests/run"]
fn the_pods_times_fit_each_other() {
    let all = documents("kubernetes/sidecar.yaml");
    let flags = kvgauge::config::Flags::default();
    let text = shipped_settings(&all);
    let file = Path::new("kvgauge.toml");
    let (settings, _) = kvgauge::config::load_text(file, &text, [], &flags).unwrap();
    let (delay, timeout) = (settings.drain.delay, settings.drain.timeout);
    let pod = &of_kind(&all, "Deployment")["spec"]["template"]["spec"];
    let seconds = |value: &Value| Duration::from_secs(value.as_u64().unwrap());

    let own = &pod["initContainers"][0];
    let hook = own["lifecycle"]["preStop"]["exec"]["command"].as_array();
    let hook: Vec<&str> = hook.unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    let image = fs::read_to_string(config("../Dockerfile")).unwrap();
    assert!(image.contains(&format!("ENTRYPOINT [\"{}\"]", hook[0])));
    // What the hook runs is there, and without more words it means the container's own process.
    assert_eq!(hook[1..], ["drain"]);
    let help = run(&[hook[1], "--help"]);
    assert!(help.status.success(), "{help:?}");
    assert!(said(&help).contains("[default: 1]"), "{}", said(&help));

    let router = &pod["containers"][0];
    let sleep = seconds(&router["lifecycle"]["preStop"]["sleep"]["seconds"]);
    let args = router["args"].as_array().unwrap().iter();
    let mut patience = args.filter_map(|arg| {
        let text = arg.as_str().unwrap();
        text.strip_prefix("--shutdown-grace-period-secs=")
    });
    let patience = Duration::from_secs(patience.next().unwrap().parse().unwrap());
    let grace = seconds(&pod["terminationGracePeriodSeconds"]);
    // The kubelet needs a moment to run kvgauge's hook.
    let reserve = Duration::from_secs(2);
    assert!(delay > Duration::ZERO);
    assert!(sleep >= delay + reserve, "{sleep:?} after {delay:?}");
    assert!(patience >= timeout, "{patience:?} for {timeout:?}");
    assert!(grace >= sleep + patience + reserve, "{grace:?}");
    assert!(grace >= delay + timeout + reserve, "{grace:?}");
}

/// The Operator's own definition of a PodMonitor; the API server throws away what is no key of it without a
/// word.
#[test]
#[ignore = "needs node and its packages, PyYAML: tests/run"]
fn the_prometheus_operator_takes_the_pod_monitors() {
    let shipped = documents("kubernetes/podmonitor.yaml");
    let wrong = |change: fn(&mut Value)| {
        let mut list = shipped.clone();
        change(&mut list[1]);
        list
    };
    let lists = [
        wrong(|m| m["spec"]["podMetricsEndpoints"][0]["intervall"] = "10s".into()),
        wrong(|m| m["spec"]["podMetricsEndpoints"][0]["interval"] = "10 s".into()),
        wrong(|m| {
            let rule = &mut m["spec"]["podMetricsEndpoints"][0]["relabelings"][0];
            rule["target_label"] = "deployment".into();
        }),
        wrong(|m| m["spec"]["selector"] = Value::Null),
        wrong(|m| m["kind"] = "ServiceMonitor".into()),
        // As it is in the comment for a token.
        wrong(|m| {
            m["spec"]["podMetricsEndpoints"][0]["authorization"] =
                serde_json::json!({"credentials": {"name": "kvgauge-admin", "key": "token"}});
        }),
        shipped,
    ];
    let said = node_script("podmonitors.mjs", [serde_json::to_string(&lists).unwrap()]);
    let mut said: Vec<Vec<String>> = serde_json::from_str(&said).unwrap();
    assert_eq!(said.pop().unwrap(), Vec::<String>::new());
    assert_eq!(said.pop().unwrap(), Vec::<String>::new());
    assert_eq!(said.len(), 5);
    for (said, about) in said.iter().zip([
        "/spec/podMetricsEndpoints/0/intervall",
        "/spec/podMetricsEndpoints/0/interval",
        "/spec/podMetricsEndpoints/0/relabelings/0/target_label",
        "/spec/selector",
        "/kind",
    ]) {
        assert!(
            said.len() == 1 && said[0].contains(about),
            "{about}: {said:?}"
        );
    }
}

/// Several replicas must not multiply the engines' series; of the router's there is no other page.
#[test]
#[ignore = "needs PyYAML: tests/run"]
fn a_replica_shows_the_routers_series_and_none_of_the_engines() {
    let text = shipped_settings(&documents("kubernetes/sidecar.yaml"));
    assert!(!text.contains("[metrics]"), "{text}");
    let (_, section) = text.split_once("[discovery.source]").unwrap();
    // Up to what is said of the next one.
    let section = section.split_once("\n\n").unwrap().0;
    let engine = Page::real("sglang-0.5.23-decode-tp4-busy");
    let router = Page::real("sglang-router-0.3.2-pd-after-traffic");
    let folder = tempfile::tempdir().unwrap();
    let found = folder.path().join("found.json");
    let (engine_at, path) = (engine.address(), found.display());
    let list =
        format!("[{{\"targets\": [\"{engine_at}\"], \"labels\": {{\"role\": \"decode\"}}}}]");
    fs::write(&found, list).unwrap();
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings(&format!(
            "scrape.interval = \"100ms\"\n[discovery]\nfile_sd = [\"{path}\"]\n[discovery.source]{section}\n"
        ))
        .source("router", "", &router)
        .start();
    kvgauge.until_up("router");
    kvgauge.until_up(&format!("decode-{engine_at}"));
    let page = get(kvgauge.admin, "/metrics").text();
    let series = |name: &str| page.lines().filter(|line| line.starts_with(name)).count();
    assert!(series("smg_") > 0, "{page}");
    assert_eq!(series("sglang:"), 0, "{page}");
    assert!(
        series("kvgauge_kv_usage_ratio{role=\"decode\"") > 0,
        "{page}"
    );
}

/// A target's labels after the `relabelings` of a PodMonitor: the action is `replace` throughout.
fn relabelled(endpoint: &Value, target: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = target
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    for rule in endpoint["relabelings"].as_array().unwrap() {
        for key in rule.as_object().unwrap().keys() {
            let known = [
                "sourceLabels",
                "separator",
                "regex",
                "targetLabel",
                "replacement",
            ];
            assert!(known.contains(&key.as_str()), "{key}");
        }
        let names = rule["sourceLabels"].as_array().cloned().unwrap_or_default();
        let values: Vec<&str> = names
            .iter()
            .map(|name| labels[name.as_str().unwrap()].as_str())
            .collect();
        let joined = values.join(rule["separator"].as_str().unwrap_or(";"));
        let pattern = rule["regex"].as_str().unwrap_or("(.*)");
        let pattern = regex_lite::Regex::new(&format!("^(?s:{pattern})$")).unwrap();
        let Some(parts) = pattern.captures(&joined) else {
            continue;
        };
        let mut made = String::new();
        parts.expand(rule["replacement"].as_str().unwrap_or("$1"), &mut made);
        labels.insert(rule["targetLabel"].as_str().unwrap().to_owned(), made);
    }
    labels
}

/// The rules want one job, one deployment for kvgauge and its engines, and sources as kvgauge names them.
#[test]
#[ignore = "needs PyYAML: tests/run"]
fn what_the_operator_scrapes_has_the_labels_that_the_rules_ask_for() {
    let monitors = documents("kubernetes/podmonitor.yaml");
    let named = |name: &str| {
        let found = monitors.iter().find(|m| m["metadata"]["name"] == name);
        &found.unwrap()["spec"]["podMetricsEndpoints"][0]
    };
    let kvgauge = relabelled(
        named("kvgauge"),
        &[
            ("job", "prod/kvgauge"),
            ("__address__", "10.0.0.9:30090"),
            ("__meta_kubernetes_namespace", "prod"),
        ],
    );
    let alerts = fs::read_to_string(config("prometheus/kvgauge.alerts.yml")).unwrap();
    assert!(alerts.contains(&format!("absent(up{{job=\"{}\"}})", kvgauge["job"])));
    let engine = |address: &str| {
        relabelled(
            named("sglang"),
            &[
                ("job", "prod/sglang"),
                ("__address__", address),
                ("__meta_kubernetes_namespace", "prod"),
                ("__meta_kubernetes_pod_label_role", "decode"),
            ],
        )
    };
    let newer = engine("[fd00::1]:30000");
    let engine = engine("10.0.0.1:30000");
    assert_eq!(kvgauge["deployment"], "prod");
    assert_eq!(engine["deployment"], kvgauge["deployment"]);
    assert_eq!(engine["source"], "decode-10.0.0.1:30000");
    assert_eq!(newer["source"], "decode-fd00::1:30000");
    // Else KvEngineSeriesTwice and KvgaugeDown would speak of engines.
    assert_ne!(engine["job"], kvgauge["job"]);
}
