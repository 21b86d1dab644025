//! A process of the demonstration that records conversations until its standard input is closed, and reports each
//! acknowledged message on its standard output.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use hermes_state::{NewSession, SessionDb};
use serde::{Deserialize, Serialize};

use super::WRITERS;
use super::sample::{self, Conversation};
use crate::error::{CommandError, Kind};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    path: PathBuf,
    number: usize,
}

/// A message that the store has promised to keep.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Acknowledged {
    pub(crate) session: String,
    /// Which conversation of the sample, and which of its messages.
    pub(crate) conversation: usize,
    pub(crate) message: usize,
    pub(crate) id: i64,
    waited_us: u64,
}

impl Acknowledged {
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandError> {
    let conversations = sample::conversations();
    let stopped = stop_at_end_of_input();
    let db = SessionDb::open(&arguments.path)?;
    let mut report = io::stdout().lock();
    for round in 1.. {
        for (number, conversation) in conversations.iter().enumerate().skip(arguments.number).step_by(WRITERS) {
            let session = format!("demo-{number:02}-{round}");
            db.create_session(NewSession::new(&session, &conversation.source).model("demo-1"))?;
            db.set_session_title(&session, Some(&title(conversation, round)))?;
            for (index, fields) in conversation.messages.iter().enumerate() {
                if stopped.load(Ordering::Relaxed) {
                    return Ok(db.close()?);
                }
                let message = crate::line::message(fields.clone())
                    .map_err(|reason| CommandError::new(Kind::Bug, format!("the sample is bad: {reason}")))?;
                let asked = Instant::now();
                let stored = db.append_message(&session, message)?.id();
                let id = stored.ok_or_else(|| CommandError::new(Kind::Bug, "a message was spooled without a spool"))?;
                let waited_us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
                let told =
                    Acknowledged { session: session.clone(), conversation: number, message: index, id, waited_us };
                writeln!(report, "{}", serde_json::to_string(&told)?)?;
            }
        }
    }
    Ok(())
}

/// Titles are unique in a store, so later rounds are numbered.
fn title(conversation: &Conversation, round: u32) -> String {
    if round == 1 { conversation.title.clone() } else { format!("{} #{round}", conversation.title) }
}

/// A parent that ends, in whatever way, closes the pipe, so no writer outlives its demonstration.
fn stop_at_end_of_input() -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    std::thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    stopped
}
