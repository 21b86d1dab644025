//! Hands what the store has to say to the Python logger `hermes_state`.

use std::fmt::{Debug, Write as _};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// From now on warnings of the library go to Python's logging. The library speaks on the caller's thread and never
/// while it holds a lock, so a handler may do as it likes.
pub(crate) fn forward_to_python() {
    // It fails where somebody in this process listens already; then that one hears the store.
    let _ = tracing::subscriber::set_global_default(ToPython);
}

struct ToPython;

impl Subscriber for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("hermes_state")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        // A logger that fails must not fail the call that had something to say.
        let _ = Python::try_attach(|py| log(py, level, &line.text()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn log(py: Python<'_>, level: i32, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("hermes_state",))?;
    logger.call_method1("log", (level, "%s", text))?;
    Ok(())
}

/// The message of an event, and its other fields after it.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn text(&self) -> String {
        if self.fields.is_empty() { self.message.clone() } else { format!("{} ({})", self.message, self.fields) }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            let separator = if self.fields.is_empty() { "" } else { ", " };
            let _ = write!(self.fields, "{separator}{}: {value:?}", field.name());
        }
    }
}
