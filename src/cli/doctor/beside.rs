//! Where nobody answers of those who were looked for: a kvgauge that runs here and reads others, such as
//! `kvgauge demo`.

use crate::config::{Settings, Source, Target};
use crate::scrape::{Access, get};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};

/// The most pages of which a command is made.
const MOST: usize = 16;

/// `/sources`, as far as it is used here.
#[derive(Deserialize)]
struct Sources {
    sources: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    url: String,
    role: Option<String>,
}

/// What to call instead, where a kvgauge answers at the operators' address in the settings and reads other
/// pages than these settings name.
pub(super) async fn what_else(settings: &Settings) -> Option<String> {
    let listen = settings.admin.listen;
    let host = match listen.ip() {
        any if any.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        one => one,
    };
    let url = Target {
        tls: false,
        server_name: None,
        host: host.to_string().into(),
        port: listen.port(),
        path: "/sources".into(),
    };
    let kvgauge = Source {
        bearer_file: settings.admin.bearer_file.clone(),
        ..Source::new("kvgauge".into(), url, None)
    };
    let access = Access::of(&kvgauge);
    let said = get("kvgauge", &kvgauge.url, &settings.scrape, &access).await;
    let Sources { sources } = serde_json::from_slice(&said.ok()?).ok()?;
    let ours: Vec<String> = settings.sources.iter().map(|s| s.url.to_string()).collect();
    if sources.iter().all(|source| ours.contains(&source.url)) {
        return None;
    }
    let address = format!("http://{}", kvgauge.url.authority());
    let mut text = format!(
        "\nA kvgauge answers at {address}, and reads other pages than these. What it knows:\n  \
         kvgauge status {address}\n"
    );
    if let Some(command) = command(&sources) {
        text.push_str(&format!("A look at its pages:\n  {command}\n"));
    }
    Some(text)
}

/// Where all of them can be typed as they are.
fn command(sources: &[Named]) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/-[]".contains(c);
    let fine = |source: &Named| {
        let role = source.role.as_deref().unwrap_or_default();
        [&source.name, &source.url, role]
            .iter()
            .all(|text| text.chars().all(plain))
    };
    if sources.len() > MOST || !sources.iter().all(fine) {
        return None;
    }
    let mut command = String::from("kvgauge doctor");
    for Named { name, url, role } in sources {
        command.push_str(&format!(" {name}={url}"));
        if let Some(role) = role {
            command.push_str(&format!(",role={role}"));
        }
    }
    Some(command)
}
