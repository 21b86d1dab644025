//! The environment and the home folder: the only place that reads them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folder that Hermes programs keep their files in.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    /// What the user should know about the choice of this folder.
    pub(crate) warning: Option<String>,
}

impl Home {
    /// `$HERMES_HOME`, else the platform's default; `None` if the user has no home.
    pub(crate) fn find() -> Option<Self> {
        if let Some(folder) = stripped("HERMES_HOME") {
            return Some(Self { folder: folder.into(), warning: None });
        }
        let folder = default_folder()?;
        let warning = read(&folder.join("active_profile"))
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty() && name != "default")
            .map(|name| {
                format!(
                    "HERMES_HOME is not set, but the active profile is '{name}': using {}, not that profile's folder",
                    folder.display()
                )
            });
        Some(Self { folder, warning })
    }

    /// Where the store is, unless the caller names one.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.join("state.db")
    }

    /// The gateway's sessions, from which stores of old releases take what they lack.
    pub(crate) fn sessions_json(&self) -> PathBuf {
        self.folder.join("sessions").join("sessions.json")
    }

    /// Whether this machine's other programs have the tokenizer for Chinese, Japanese and Korean.
    pub(crate) fn has_cjk_tokenizer(&self) -> bool {
        let switch = stripped("HERMES_CJK_FTS").unwrap_or_default().to_string_lossy().to_lowercase();
        if ["0", "false", "off", "no"].contains(&switch.as_str()) {
            return false;
        }
        let library = match stripped("HERMES_FTS5_CJK_SO") {
            Some(path) => with_user_home(path.into()),
            None => self.folder.join("lib").join("libfts5_cjk.so"),
        };
        library.is_file()
    }
}

#[cfg(windows)]
fn default_folder() -> Option<PathBuf> {
    let local = stripped("LOCALAPPDATA").map(PathBuf::from);
    Some(local.or_else(|| Some(std::env::home_dir()?.join("AppData").join("Local")))?.join("hermes"))
}

#[cfg(not(windows))]
fn default_folder() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".hermes"))
}

/// A variable without white space around it; `None` if nothing is left.
fn stripped(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    let value = match value.to_str() {
        Some(text) => OsString::from(text.trim()),
        None => value,
    };
    Some(value).filter(|value| !value.is_empty())
}

fn with_user_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    }
}

/// The text of a small file; one that cannot be read counts as absent.
#[expect(clippy::disallowed_methods, reason = "the one file read here is never a store's")]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
