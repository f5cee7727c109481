//! Where the moments come from: a kvgauge's stream, or pages that are read once a second.

use super::moment::{History, Moment};
use crate::cli::status::ask::{self, Asked};
use crate::config::{Scrape, Settings};
use crate::scrape::{EventStream, Missed};
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often pages are read.
const EACH: Duration = Duration::from_secs(1);

/// A kvgauge says something at least every 15 s.
const SILENCE: Duration = Duration::from_secs(20);

/// Between two tries to connect: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is heard.
#[derive(Debug)]
pub(super) enum Heard {
    History(History),
    Moment(Box<Moment>),
    /// There is no connection: who failed, what was seen, what to do. It is tried again in so long.
    Lost {
        message: String,
        again: Duration,
    },
}

/// Nobody listens any more.
struct Over;

/// Starts to listen, until the receiver is dropped. Call it within a tokio `LocalRuntime`.
pub(super) fn start(asked: Vec<Asked>, settings: Arc<Settings>) -> Receiver<Heard> {
    let (to, from) = channel(4);
    tokio::task::spawn_local(async move {
        if let [one] = &asked[..]
            && one.maybe_ours()
            && let Err(Over) = follow(one, &settings.scrape, &to).await
        {
            return;
        }
        let _ = poll(&asked, &settings, &to).await;
    });
    from
}

/// Follows a kvgauge's stream. Ends well where somebody is there that has none.
async fn follow(asked: &Asked, scrape: &Scrape, to: &Sender<Heard>) -> Result<(), Over> {
    let mut pause = FIRST_PAUSE;
    loop {
        let missed = match asked.stream(scrape).await {
            Ok(stream) => {
                pause = FIRST_PAUSE;
                hear(stream, asked, scrape, to).await?
            }
            Err(missed) if has_no_stream(&missed) => return Ok(()),
            Err(missed) => in_words(missed, asked),
        };
        let lost = Heard::Lost {
            message: missed,
            again: pause,
        };
        tell(to, lost).await?;
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Hands on what comes, until it ends: why it did.
async fn hear(
    mut stream: EventStream,
    asked: &Asked,
    scrape: &Scrape,
    to: &Sender<Heard>,
) -> Result<String, Over> {
    // Without the past there is the present.
    if let Ok(history) = asked.history(scrape).await
        && let Ok(history) = serde_json::from_slice(&history)
    {
        tell(to, Heard::History(history)).await?;
    }
    loop {
        let data = match stream.next(SILENCE).await {
            Ok(Some(data)) => data,
            Ok(None) => return Ok("kvgauge has closed the connection".to_owned()),
            Err(missed) => return Ok(missed.message),
        };
        match serde_json::from_slice(&data) {
            Ok(moment) => tell(to, Heard::Moment(Box::new(moment))).await?,
            Err(error) => {
                return Ok(format!(
                    "what kvgauge sends is not understood ({error}): use kvgauge status of its version"
                ));
            }
        }
    }
}

/// Reads pages, or asks those of several that are kvgauges for their `/kv`.
async fn poll(asked: &[Asked], settings: &Arc<Settings>, to: &Sender<Heard>) -> Result<(), Over> {
    let mut next = interval(EACH);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        next.tick().await;
        let said = ask::all(asked.to_vec(), settings).await;
        tell(to, Heard::Moment(Box::new(Moment::of(said)))).await?;
    }
}

/// Whether somebody is there, but no kvgauge that can be followed.
fn has_no_stream(missed: &Missed) -> bool {
    match missed.status {
        None => !missed.reason.ends_reading() && missed.reason == crate::kv::FailureReason::Content,
        Some(status) => matches!(
            status,
            StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::NOT_ACCEPTABLE
                | StatusCode::NOT_IMPLEMENTED
        ),
    }
}

fn in_words(missed: Missed, asked: &Asked) -> String {
    if missed.status == Some(StatusCode::SERVICE_UNAVAILABLE) {
        let at = asked.address();
        return format!(
            "{at} answered 503: it is watched by as many as it lets, or has not read its token yet"
        );
    }
    missed.message
}

async fn tell(to: &Sender<Heard>, heard: Heard) -> Result<(), Over> {
    to.send(heard).await.map_err(|_| Over)
}
