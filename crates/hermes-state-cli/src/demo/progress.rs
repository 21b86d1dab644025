//! Shows how the demonstration goes on: live bars on a terminal, a line a second elsewhere, nothing with `--json`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::older::Told;
use super::{Seen, WRITERS};
use crate::text::thousands;

pub(super) struct Progress {
    face: Face,
    holding: bool,
}

enum Face {
    None,
    Lines { next: Duration },
    Bars { writers: Vec<ProgressBar>, older: ProgressBar },
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        let face = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Face::None,
            (false, true) => bars(),
            (false, false) => {
                say("eight processes record conversations; a ninth, like an older release, will hold the write lock");
                Face::Lines { next: Duration::from_secs(1) }
            }
        };
        Self { face, holding: false }
    }

    /// Tells what the older release does.
    pub(super) fn older(&mut self, told: &Told) {
        self.holding = matches!(told, Told::Holding);
        let text = match told {
            Told::Holding => "holds the write lock for 3 seconds",
            Told::Wrote(_) => "has let go",
            Told::Checkpointed | Told::Checked(_) => "has checkpointed",
        };
        match &self.face {
            Face::None => {}
            Face::Lines { .. } => say(&format!("        the older release {text}")),
            Face::Bars { older, .. } => older.set_message(text),
        }
    }

    pub(super) fn show(&mut self, elapsed: Duration, seen: &Seen) {
        match &mut self.face {
            Face::None => {}
            Face::Lines { next } => {
                if elapsed >= *next {
                    let count = thousands(seen.acknowledged.len() as u64);
                    say(&format!("{:>4} s  {count} messages acknowledged", next.as_secs()));
                    *next += Duration::from_secs(1);
                }
            }
            Face::Bars { writers, older } => {
                let most = seen.of_writer.iter().copied().max().unwrap_or_default().max(1);
                for (bar, count) in writers.iter().zip(seen.of_writer) {
                    bar.set_length(most);
                    bar.set_position(count);
                }
                older.tick();
            }
        }
    }

    pub(super) fn done(&self) {
        if let Face::Bars { writers, older } = &self.face {
            writers.iter().for_each(ProgressBar::abandon);
            older.finish_with_message("has ended");
        }
    }
}

fn bars() -> Face {
    let style = |template| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let all = MultiProgress::new();
    let writers = (1..=WRITERS)
        .map(|number| {
            let bar = all.add(ProgressBar::new(1).with_prefix(format!("writer {number}")));
            bar.set_style(style("{prefix}  {bar:40.green} {human_pos} messages acknowledged").progress_chars("━━─"));
            bar
        })
        .collect();
    let older = all.add(ProgressBar::new_spinner().with_message("has opened the store"));
    older.set_style(style("{spinner} the older release {msg:.yellow}  ({elapsed})"));
    Face::Bars { writers, older }
}

fn say(line: &str) {
    // Progress that nobody can read is not worth failing for.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
