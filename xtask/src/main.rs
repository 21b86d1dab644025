//! The project's own chores: `cargo xtask test`, `cargo xtask lint`, `cargo xtask bench`, `cargo xtask fuzz`, `cargo xtask
//! soak`, `cargo xtask python`.
#![expect(clippy::print_stderr, reason = "a tool for the terminal")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

type Outcome = Result<(), String>;

/// What `test` runs once there is a PostgreSQL server for all of it.
const TESTS_ALONE: &str = "test-with-this-environment";

/// For how long `test` feeds each target of the fuzzer; `fuzz` takes a minute, if not told otherwise.
const SECONDS_OF_FUZZING: &str = "3";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chores = Chores { root: root() };
    let outcome = match arguments.first().map(String::as_str) {
        Some("test") => chores.test(),
        Some(TESTS_ALONE) => chores.tests(),
        Some("lint") => chores.lint(),
        Some("bench") => chores.bench(&arguments[1..]),
        Some("fuzz") => chores.fuzz(&arguments[1..]),
        Some("soak") => chores.soak(&arguments[1..]),
        Some("python") => chores.module("release").map(|interpreter| {
            eprintln!("the module hermes_state is installed for {}", interpreter.display());
        }),
        _ => {
            Err("usage: cargo xtask test | lint | bench [-- options] | fuzz [-- options] | soak [-- options] | python"
                .into())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

struct Chores {
    root: PathBuf,
}

impl Chores {
    fn target(&self) -> PathBuf {
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), PathBuf::from)
    }

    fn run(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Outcome {
        let program = program.as_ref();
        eprintln!("$ {} {}", Path::new(program).display(), arguments.join(" "));
        let status = Command::new(program)
            .args(arguments)
            .current_dir(&self.root)
            .status()
            .map_err(|error| format!("{} does not start: {error}", Path::new(program).display()))?;
        if status.success() { Ok(()) } else { Err(format!("{} failed: {status}", Path::new(program).display())) }
    }

    fn cargo(&self, arguments: &[&str]) -> Outcome {
        self.run(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
    }

    /// All tests, with one PostgreSQL server for all of them; without one where none is installed, which is said aloud.
    fn test(&self) -> Outcome {
        if !cfg!(target_os = "linux") {
            eprintln!("xtask: the tests of the PostgreSQL backend run on Linux only");
            return self.tests();
        }
        let this = std::env::current_exe().map_err(|error| format!("this program is nowhere: {error}"))?;
        let this = this.to_str().ok_or("the path of this program is no text")?;
        let with_server = ["run", "--quiet", "-p", "hermes-state-testkit", "--bin", "with-server", "--"];
        self.cargo(&[&with_server[..], &[this, TESTS_ALONE]].concat())
    }

    /// All tests: Rust, documentation, command, Python with its stubs.
    fn tests(&self) -> Outcome {
        self.cargo(&["test", "--workspace", "--exclude", "hermes-state-py"])?;
        // The command switches the server's engine on. Without it a store is found and opened by other code, and a URL
        // refused; that all of it is built without it too, lint sees to.
        self.cargo(&["test", "-p", "hermes-state", "--test", "open"])?;
        self.fuzz(&["--seconds".into(), SECONDS_OF_FUZZING.into()])?;
        let python = self.python()?;
        let stubs = "crates/hermes-state-py/tests/stubtest-allowlist.txt";
        self.run(&python, &["-m", "mypy.stubtest", "hermes_state", "--allowlist", stubs])?;
        self.run(&python, &["-m", "pytest", "-q", "crates/hermes-state-py/tests"])
    }

    /// Feeds the store with mutated input; `--seconds`, `--seed` and `--target` are handed on.
    fn fuzz(&self, arguments: &[String]) -> Outcome {
        self.program("hermes-state-fuzz", arguments)
    }

    /// Many processes on one store with kills and faults; `--seconds`, `--seed` and `--folder` are handed on.
    fn soak(&self, arguments: &[String]) -> Outcome {
        self.program("hermes-state-soak", arguments)
    }

    fn program(&self, package: &str, arguments: &[String]) -> Outcome {
        let mut command = vec!["run", "--quiet", "-p", package, "--"];
        command.extend(arguments.iter().map(String::as_str).filter(|argument| *argument != "--"));
        self.cargo(&command)
    }

    /// What a change has to be clean of.
    fn lint(&self) -> Outcome {
        self.cargo(&["fmt", "--all", "--check"])?;
        self.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
        // Without the engine for servers, which the rest of the workspace switches on.
        self.cargo(&["clippy", "-p", "hermes-state", "--all-targets", "--", "-D", "warnings"])?;
        self.run_with("RUSTDOCFLAGS", "-D warnings", &["doc", "--workspace", "--no-deps"])?;
        // Advisories need a database from the network; they are checked where there is one.
        self.cargo(&["deny", "check", "bans", "licenses", "sources"])?;
        let python = self.environment()?;
        self.run(&python, &["-m", "ruff", "check", "crates/hermes-state-py"])?;
        self.run(&python, &["-m", "ruff", "format", "--check", "crates/hermes-state-py"])
    }

    fn run_with(&self, variable: &str, value: &str, arguments: &[&str]) -> Outcome {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        eprintln!("$ {variable}='{value}' cargo {}", arguments.join(" "));
        let status = Command::new(cargo)
            .args(arguments)
            .env(variable, value)
            .current_dir(&self.root)
            .status()
            .map_err(|error| format!("cargo does not start: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("cargo {} failed: {status}", arguments.join(" "))) }
    }

    /// The benchmark, with the Python face built for it.
    fn bench(&self, arguments: &[String]) -> Outcome {
        let python = self.module("release")?;
        let python = python.to_str().ok_or("the path of the environment is no text")?;
        let mut command = vec!["run", "--release", "-p", "hermes-state-bench", "--", "--python", python];
        command.extend(arguments.iter().map(String::as_str).filter(|argument| *argument != "--"));
        self.cargo(&command)
    }

    /// An interpreter in which the module of this tree is installed, as the tests use it.
    fn python(&self) -> Result<PathBuf, String> {
        self.module("dev")
    }

    /// Builds the wheel and installs it in the project's own virtual environment.
    fn module(&self, profile: &str) -> Result<PathBuf, String> {
        let python = self.environment()?;
        let wheels = self.target().join("wheels").join(profile);
        let _ = std::fs::remove_dir_all(&wheels);
        let wheels_text = wheels.to_str().ok_or("the path of the wheels is no text")?;
        let manifest = "crates/hermes-state-py/Cargo.toml";
        self.run(&python, &["-m", "maturin", "build", "--profile", profile, "-m", manifest, "-o", wheels_text])?;
        let wheel = std::fs::read_dir(&wheels)
            .map_err(|error| format!("{}: {error}", wheels.display()))?
            .find_map(|entry| entry.ok().map(|entry| entry.path()))
            .ok_or("maturin built no wheel")?;
        let wheel = wheel.to_str().ok_or("the path of the wheel is no text")?;
        self.run(&python, &["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel])?;
        Ok(python)
    }

    /// The project's own virtual environment, made anew when its requirements change.
    fn environment(&self) -> Result<PathBuf, String> {
        let folder = self.target().join("venv");
        let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
        let requirements = self.root.join("xtask/requirements.txt");
        #[expect(clippy::disallowed_methods, reason = "a text file of the project")]
        let wanted = std::fs::read(&requirements).map_err(|error| format!("{}: {error}", requirements.display()))?;
        let stamp = folder.join("requirements-installed.txt");
        #[expect(clippy::disallowed_methods, reason = "a text file of the project")]
        if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(python);
        }
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("a path is no text");
        self.run("python3", &["-m", "venv", "--clear", &text(&folder)?])?;
        self.run(&python, &["-m", "pip", "install", "--quiet", "-r", &text(&requirements)?])?;
        #[expect(clippy::disallowed_methods, reason = "a text file of the project")]
        std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
        Ok(python)
    }
}
