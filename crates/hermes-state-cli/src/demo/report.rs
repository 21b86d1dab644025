//! What the demonstration found, as a table for people and as JSON.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use hermes_state::{SearchHit, SearchOptions, SessionDb};
use serde_json::{Value as Json, json};

use super::older::Checked;
use super::verify::{Verdict, verify};
use super::{Seen, staff};
use crate::commands::search::write_hit;
use crate::error::CommandError;
use crate::output::Output;
use crate::text::{bytes, thousands};

/// A word of the sample that is searched for at the end.
const QUERY: &str = "Hafenkran";

pub(super) struct Report {
    path: PathBuf,
    seen: Seen,
    verdict: Verdict,
    checked: Checked,
    hit: Option<SearchHit>,
    search_took: Duration,
}

impl Report {
    /// Checks the finished store.
    pub(super) fn new(path: &Path, seen: Seen) -> Result<Self, CommandError> {
        let verdict = verify(path, &seen)?;
        let checked = staff::check(path)?;
        let db = SessionDb::open_read_only(path)?;
        let asked = std::time::Instant::now();
        let results = db.search_messages(QUERY, &SearchOptions { limit: 1, ..SearchOptions::default() })?;
        let search_took = asked.elapsed();
        let hit = results.first().cloned();
        Ok(Self { path: path.to_owned(), seen, verdict, checked, hit, search_took })
    }

    fn acknowledged(&self) -> u64 {
        (self.seen.acknowledged.len() + self.seen.older.len()) as u64
    }

    fn per_second(&self) -> u64 {
        (self.seen.acknowledged.len() as f64 / self.seen.took.as_secs_f64()) as u64
    }

    /// What the slowest writer got done, as a share of what the fastest did.
    fn fairness(&self) -> f64 {
        let slowest = self.seen.of_writer.iter().min().copied().unwrap_or_default();
        let fastest = self.seen.of_writer.iter().max().copied().unwrap_or_default();
        slowest as f64 / fastest.max(1) as f64
    }

    fn held_ms(&self) -> Vec<u64> {
        self.seen.older.iter().map(|wrote| wrote.held_ms).collect()
    }

    /// Why this store would not deserve trust.
    pub(super) fn fault(&self) -> Option<String> {
        let Verdict { lost, surplus, miscounted, .. } = self.verdict;
        if let Some(failed) = self.seen.failed.first() {
            return Some(failed.clone());
        }
        [
            (lost > 0, format!("{lost} acknowledged messages were lost")),
            (surplus > 0, format!("{surplus} messages are stored that nobody was promised")),
            (miscounted > 0, format!("{miscounted} sessions count their messages wrongly")),
            (self.checked.integrity != "ok", format!("integrity: {}", self.checked.integrity)),
            (
                u64::try_from(self.checked.messages) != Ok(self.acknowledged()),
                format!("SQLite counts {} messages", self.checked.messages),
            ),
            (self.seen.of_writer.contains(&0), "a writer got nothing done".to_owned()),
            (self.hit.is_none(), format!("no message was found by a search for {QUERY}")),
        ]
        .into_iter()
        .find_map(|(wrong, what)| wrong.then_some(what))
    }

    pub(super) fn json(&self, keep: bool) -> Json {
        json!({
            "ok": self.fault().is_none(),
            "store": keep.then(|| self.path.clone()),
            "seconds": self.seen.took.as_secs_f64(),
            "acknowledged": self.acknowledged(),
            "found": self.verdict.found,
            "lost": self.verdict.lost,
            "surplus": self.verdict.surplus,
            "miscounted_sessions": self.verdict.miscounted,
            "integrity": self.checked.integrity,
            "longest_wait_seconds": self.seen.longest_wait.as_secs_f64(),
            "fairness": self.fairness(),
            "messages_of_each_writer": self.seen.of_writer,
            "older_release_held_ms": self.held_ms(),
            "failed_processes": self.seen.failed,
            "search": { "query": QUERY, "snippet": self.hit.as_ref().and_then(|hit| hit.snippet.clone()) },
        })
    }

    pub(super) fn write(&self, out: &mut Output, keep: bool) -> Result<(), CommandError> {
        let held: Vec<String> = self.held_ms().iter().map(|ms| format!("{:.1} s", *ms as f64 / 1000.0)).collect();
        let lost = if self.verdict.lost == 0 { AnsiColor::Green } else { AnsiColor::Red }.on_default().bold();
        let rows = [
            ("messages acknowledged", thousands(self.acknowledged())),
            ("found in the store", thousands(self.verdict.found)),
            ("lost", format!("{lost}{}{lost:#}", thousands(self.verdict.lost))),
            ("stored without a promise", thousands(self.verdict.surplus)),
            ("the older release held the lock", held.join(" and ")),
            ("longest wait of a message", format!("{:.2} s", self.seen.longest_wait.as_secs_f64())),
            ("slowest / fastest writer", format!("{:.2}", self.fairness())),
            ("messages a second, holds included", thousands(self.per_second())),
            ("integrity, as SQLite sees it", self.checked.integrity.clone()),
        ];
        writeln!(out)?;
        for (name, value) in rows {
            writeln!(out, "  {name:<34} {value}")?;
        }
        self.write_search(out)?;
        if keep {
            let size = self.path.metadata().map_or(0, |metadata| metadata.len());
            writeln!(out, "The store is kept: {} ({})", self.path.display(), bytes(size))?;
        }
        Ok(writeln!(out, "This was the demonstration; `hermes-state --help` shows the rest.")?)
    }

    fn write_search(&self, out: &mut Output) -> Result<(), CommandError> {
        let bold = Style::new().bold();
        let took = self.search_took.as_secs_f64() * 1000.0;
        writeln!(out, "\n{bold}hermes-state search {QUERY}{bold:#}  ({took:.1} ms)")?;
        self.hit.iter().try_for_each(|hit| write_hit(out, hit))
    }
}
