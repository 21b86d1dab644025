//! Standard output and notes on standard error: one locked, buffered stream, coloured only where that is wanted.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::arguments::Global;
use crate::environment::without_passwords;
use crate::error::CommandError;
use crate::text::visible;

/// Where a command writes its answer.
pub(crate) struct Output {
    stdout: BufWriter<AutoStream<StdoutLock<'static>>>,
    pub(crate) json: bool,
    /// Whether a person is looking at it.
    pub(crate) terminal: bool,
    /// Whether styles reach the reader.
    pub(crate) coloured: bool,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let stdout = io::stdout();
        let coloured = AutoStream::choice(&stdout) != ColorChoice::Never;
        Self {
            terminal: stdout.is_terminal(),
            coloured,
            json: global.json,
            stdout: BufWriter::new(AutoStream::auto(stdout.lock())),
        }
    }

    /// Writes the one JSON document of a command: on one line, or spread out for a person.
    pub(crate) fn document(&mut self, document: &impl Serialize) -> Result<(), CommandError> {
        if self.terminal {
            serde_json::to_writer_pretty(&mut self.stdout, document)?;
        } else {
            serde_json::to_writer(&mut self.stdout, document)?;
        }
        Ok(writeln!(self.stdout)?)
    }

    /// Writes a table, fitted to the terminal if there is one. Cells must be free of control characters.
    pub(crate) fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>) -> Result<(), CommandError> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if !header.is_empty() {
            table.set_header(header);
        }
        if self.terminal {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        table.add_rows(rows);
        for row in table.lines() {
            writeln!(self.stdout, "{}", row.trim_end())?;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<(), CommandError> {
        Ok(self.stdout.flush()?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stdout.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// Tells the user something beside the answer.
pub(crate) fn note(text: &str) {
    let bold = Style::new().bold();
    // A note that nobody can read is not worth failing for.
    let _ = writeln!(anstream::stderr().lock(), "{bold}Note:{bold:#} {}", visible(text));
}

/// Shows the library's warnings, as lines or as one JSON object each.
pub(crate) fn log_to_stderr(json: bool) {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::stderr).without_time();
    if json {
        log.event_format(Warnings).init();
    } else {
        log.with_target(false).with_ansi(false).init();
    }
}

/// A warning as JSON: the same shape as an error, with the facts that belong to it.
struct Warnings;

impl<S, N> FormatEvent<S, N> for Warnings
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        writeln!(writer, "{}", json!({ "warning": fields.0 }))
    }
}

/// What a warning says.
#[derive(Default)]
struct Fields(serde_json::Map<String, Json>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), without_passwords(&format!("{value:?}")).into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), without_passwords(value).into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
