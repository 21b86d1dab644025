//! Standard output and notes on standard error: one locked, buffered stream, coloured only where that is wanted.

use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use tracing_subscriber::filter::LevelFilter;

use crate::arguments::Global;
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

/// Shows the library's warnings, as lines or as JSON.
pub(crate) fn log_to_stderr(json: bool) {
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(io::stderr).without_time();
    if json {
        log.json().init();
    } else {
        log.with_target(false).with_ansi(false).init();
    }
}
