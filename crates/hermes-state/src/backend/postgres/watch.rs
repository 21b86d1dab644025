//! Looks after a statement that is not answered: who is in its way, and whether the server still knows of it.
//!
//! A second connection asks. It tells a server that is busy from a connection that only seems to be one: a firewall has
//! forgotten it, a proxy swallows what it carries, its process of the server is gone. Of such a connection nothing would
//! come however long it was waited for, while a new one may serve at once.

use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout_at};
use tokio_postgres::Client;

use super::connect::{self, ConnectError, Connected, Role};
use super::url::Address;
use crate::error::{Holder, ServerTrouble};

/// After how long without an answer somebody is asked for the first time, and then again.
const ASK_AFTER: Duration = Duration::from_millis(700);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long the server may answer nobody before the connection is given up.
const SILENCE: Duration = Duration::from_secs(8);

/// How long the server's process may be seen to wait for us, who wait for it. Long, because that is also what it does
/// while one big message arrives on a slow line.
const MISSED: Duration = Duration::from_secs(10);

/// Why a wait for an answer ended without one.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// Its time is over.
    Late,
    /// The connection is dead. The text says why.
    Dead(&'static str),
}

/// What one look at the server's process showed.
enum Seen {
    /// It is at work, or waits for something else than us.
    Busy(Option<Holder>),
    /// It is not there.
    Gone,
    /// It waits for a statement of ours, since this moment of the server's.
    Idle(Option<String>),
    /// Nobody is let in to look now, which is an answer, too.
    Closed,
}

/// Returns when the statement that the server's process `process` works on is not worth waiting for any longer. Who is
/// seen in its way is put into `holder`.
pub(super) async fn watch(
    address: &Address,
    process: i32,
    deadline: Instant,
    holder: &mut Option<(Holder, Instant)>,
) -> Unanswered {
    let mut observer = None;
    let mut heard = Instant::now();
    let mut idle: Option<(Option<String>, Instant)> = None;
    let mut next = heard + ASK_AFTER;
    loop {
        sleep_until(next.min(deadline).into()).await;
        if Instant::now() >= deadline {
            return Unanswered::Late;
        }
        let silent_at = heard + SILENCE;
        match timeout_at(silent_at.min(deadline).into(), look(&mut observer, address, process)).await {
            Ok(Some(seen)) => {
                heard = Instant::now();
                match seen {
                    Seen::Gone => return Unanswered::Dead("the server has ended the connection"),
                    Seen::Idle(since) => match &idle {
                        Some((before, from)) if *before == since => {
                            if from.elapsed() >= MISSED {
                                return Unanswered::Dead("the server does not get what is sent to it");
                            }
                        }
                        _ => idle = Some((since, heard)),
                    },
                    Seen::Busy(in_the_way) => {
                        idle = None;
                        *holder = in_the_way.map(|in_the_way| (in_the_way, heard)).or(holder.take());
                    }
                    Seen::Closed => {}
                }
            }
            Ok(None) => observer = None,
            Err(_) if Instant::now() >= deadline => return Unanswered::Late,
            Err(_) => {}
        }
        if heard + SILENCE <= Instant::now() {
            return Unanswered::Dead("the server does not answer");
        }
        next = Instant::now() + ASK_AGAIN;
    }
}

/// One look, on the observer's connection; `None` if it broke or none was to be had.
async fn look(observer: &mut Option<Connected>, address: &Address, process: i32) -> Option<Seen> {
    if observer.is_none() {
        match connect::connect(address, Role::Reader).await {
            Ok(connected) => *observer = Some(connected),
            Err(
                ConnectError::Permanent(_) | ConnectError::Transient { trouble: ServerTrouble::Unavailable { .. }, .. },
            ) => {
                return Some(Seen::Closed);
            }
            Err(ConnectError::Transient { .. }) => return None,
        }
    }
    ask(&observer.as_ref()?.client, process).await.ok()
}

/// What the process does, and who has blocked it, longest at it first. Users who may not see the other's state see NULL.
async fn ask(observer: &Client, process: i32) -> Result<Seen, tokio_postgres::Error> {
    let sql = "SELECT ours.state, ours.wait_event = 'ClientRead', theirs.pid, theirs.application_name, \
                   CAST(EXTRACT(EPOCH FROM clock_timestamp() - theirs.xact_start) AS double precision), \
                   CAST(ours.state_change AS text) \
               FROM pg_stat_activity ours \
                   LEFT JOIN pg_stat_activity theirs ON theirs.pid = ANY (pg_blocking_pids(ours.pid)) \
               WHERE ours.pid = $1 ORDER BY theirs.xact_start LIMIT 1";
    let Some(row) = observer.query_opt(sql, &[&process]).await? else { return Ok(Seen::Gone) };
    let (state, reading): (Option<String>, Option<bool>) = (row.try_get(0)?, row.try_get(1)?);
    if state.is_some_and(|state| state.starts_with("idle")) && reading == Some(true) {
        return Ok(Seen::Idle(row.try_get(5)?));
    }
    let Some(pid) = row.try_get(2)? else { return Ok(Seen::Busy(None)) };
    let program: Option<String> = row.try_get(3)?;
    let since: Option<f64> = row.try_get(4)?;
    Ok(Seen::Busy(Some(Holder {
        operation: None,
        pid,
        program: program.filter(|name| !name.is_empty()),
        since: since.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
    })))
}
