//! A server of this computer's own PostgreSQL for the time of a test, spoken to through its terminal.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) struct Server {
    programs: PathBuf,
    folder: tempfile::TempDir,
    process: Child,
}

impl Server {
    /// `None` where PostgreSQL is not installed.
    pub(super) fn start() -> Option<Self> {
        let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
            .collect();
        versions.sort();
        let programs = versions.pop().filter(|programs| programs.join("initdb").exists())?;
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        // PostgreSQL refuses to be run by root.
        if as_root() {
            assert!(Command::new("chown").args(["-R", "postgres"]).arg(folder.path()).status().unwrap().success());
        }
        let made = ordinary(&programs.join("initdb"))
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync", "--pgdata"])
            .arg(&data)
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        let process = ordinary(&programs.join("postgres"))
            .args(["-F", "-h", "", "-k"])
            .arg(folder.path())
            .arg("-D")
            .arg(&data)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { programs, folder, process };
        let started = Instant::now();
        while !server.terminal("pg_isready").stdout(Stdio::null()).status().unwrap().success() {
            assert!(started.elapsed() < Duration::from_secs(60), "the server does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }

    /// Runs a script and gives the lines it prints.
    pub(super) fn run(&self, script: &str) -> Vec<String> {
        let mut terminal = self.terminal("psql");
        terminal.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", "postgres"]);
        let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = terminal.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || input.write_all(script.as_bytes()).unwrap());
            terminal.wait_with_output().unwrap()
        });
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn terminal(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-h").arg(self.folder.path()).args(["-U", "postgres"]);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.folder.path().join("data").join("postmaster.pid");
        let stop = ordinary(&self.programs.join("pg_ctl"))
            .args(["stop", "--mode=immediate", "--silent", "--pgdata"])
            .arg(pid.with_file_name(""))
            .stdout(Stdio::null())
            .status();
        if !stop.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

fn as_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn ordinary(program: &Path) -> Command {
    let mut command = if as_root() { Command::new("setpriv") } else { Command::new(program) };
    if as_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    }
    command.current_dir("/");
    command
}
