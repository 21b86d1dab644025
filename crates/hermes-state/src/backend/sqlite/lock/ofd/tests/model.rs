//! Random schedules over handles of every kind, each step compared with what one writer and steady snapshots allow.

use super::*;

enum Handle {
    Ours(Connection),
    Neighbour(Neighbour),
    Sibling(Sibling),
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Busy,
    Wrong(String),
}

/// Handles 0 to 3 are ours, 4 and 5 the neighbour's, 6 and 7 in other processes.
fn owner(number: usize) -> usize {
    [0, 0, 0, 0, 4, 4, 6, 7][number]
}

impl Handle {
    fn open(number: usize, path: &Path) -> Self {
        match owner(number) {
            0 => Handle::Ours(open(path)),
            4 => Neighbour::open(path).map_or_else(|| Handle::Sibling(Sibling::start(path)), Handle::Neighbour),
            _ => Handle::Sibling(Sibling::start(path)),
        }
    }

    fn run(&mut self, sql: &str) -> Outcome {
        match self {
            Handle::Ours(connection) => match connection.execute_batch(sql) {
                Ok(()) => Outcome::Done,
                Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Outcome::Busy,
                Err(e) => Outcome::Wrong(e.to_string()),
            },
            Handle::Neighbour(neighbour) => match neighbour.exec(sql) {
                0 => Outcome::Done,
                5 => Outcome::Busy,
                other => Outcome::Wrong(other.to_string()),
            },
            Handle::Sibling(sibling) => match sibling.ask(sql).as_str() {
                "error database is locked" => Outcome::Busy,
                answer if answer.starts_with("ok") => Outcome::Done,
                answer => Outcome::Wrong(answer.to_owned()),
            },
        }
    }
}

/// A statement that fails unless the table has this many rows.
fn counts(rows: usize) -> String {
    format!("SELECT CASE WHEN (SELECT count(*) FROM t) = {rows} THEN 1 ELSE abs(-9223372036854775807 - 1) END")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// Sees this many rows.
    Reading(usize),
    /// Sees this many rows; waiting for readers to go or not.
    Writing(usize, bool),
}

struct Model {
    db: Db,
    handles: Vec<Option<(Handle, State)>>,
    committed: usize,
}

impl Model {
    fn writer(&self) -> bool {
        self.handles.iter().flatten().any(|(_, state)| matches!(state, State::Writing(..)))
    }

    fn readers(&self) -> bool {
        self.handles.iter().flatten().any(|(_, state)| matches!(state, State::Reading(_)))
    }

    /// In rollback mode a writer that waits for the readers to go lets no new ones in, except those whom an older
    /// reader of the same library in the same process lets share its lock.
    fn lets_in(&self, number: usize) -> bool {
        let handles = || (0..).zip(&self.handles).filter_map(|(n, handle)| Some((n, handle.as_ref()?.1)));
        let is_kin = |other: usize| owner(other) == owner(number);
        match handles().find(|(_, state)| matches!(state, State::Writing(_, true))) {
            None => true,
            Some((writer, _)) if is_kin(writer) => false,
            Some(_) => handles().any(|(n, state)| is_kin(n) && matches!(state, State::Reading(_))),
        }
    }

    fn step(&mut self, number: usize, dice: u64) -> String {
        let Some((mut handle, mut state)) = self.handles[number].take() else {
            let mut handle = Handle::open(number, &self.db.path());
            if self.db.mode == Mode::Wal || dice.is_multiple_of(2) {
                let expected = self.when(self.lets_in(number));
                assert_eq!(handle.run(&counts(self.committed)), expected, "{number} opens and reads");
            }
            self.handles[number] = Some((handle, State::Idle));
            return format!("{number} opens");
        };
        let mut did = "closes";
        let closes = dice.is_multiple_of(8);
        match state {
            _ if closes => {}
            State::Idle => match dice / 8 % 4 {
                0 | 1 => {
                    did = "begins to write";
                    let free = !self.writer();
                    assert_eq!(handle.run("BEGIN IMMEDIATE"), self.when(free), "{number} {did}");
                    if free {
                        state = State::Writing(self.committed, false);
                    }
                }
                2 => {
                    did = "begins to read";
                    let open = self.lets_in(number);
                    assert_eq!(handle.run("BEGIN"), Outcome::Done);
                    assert_eq!(handle.run(&counts(self.committed)), self.when(open), "{number} {did}");
                    if open {
                        state = State::Reading(self.committed);
                    } else {
                        assert_eq!(handle.run("ROLLBACK"), Outcome::Done);
                    }
                }
                _ => {
                    did = "checkpoints";
                    if self.db.mode == Mode::Wal {
                        let kind = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"][(dice / 32 % 4) as usize];
                        let outcome = handle.run(&format!("PRAGMA wal_checkpoint({kind})"));
                        assert!(!matches!(outcome, Outcome::Wrong(_)), "{number} {did}: {outcome:?}");
                    }
                }
            },
            State::Reading(rows) => {
                did = "reads on";
                assert_eq!(handle.run(&counts(rows)), Outcome::Done, "{number} {did}");
                if (dice / 8).is_multiple_of(2) {
                    assert_eq!(handle.run("COMMIT"), Outcome::Done);
                    state = State::Idle;
                }
            }
            State::Writing(rows, waits) => match dice / 8 % 4 {
                0 if !waits => {
                    did = "writes";
                    assert_eq!(handle.run("INSERT INTO t VALUES ('model', 1)"), Outcome::Done, "{number} {did}");
                    assert_eq!(handle.run(&counts(rows + 1)), Outcome::Done, "{number} sees what it writes");
                    state = State::Writing(rows + 1, false);
                }
                0..=2 => {
                    did = "commits";
                    let free = self.db.mode == Mode::Wal || !self.readers();
                    assert_eq!(handle.run("COMMIT"), self.when(free), "{number} {did}");
                    state = if free { State::Idle } else { State::Writing(rows, true) };
                    if free {
                        self.committed = rows;
                    }
                }
                _ => {
                    did = "rolls back";
                    assert_eq!(handle.run("ROLLBACK"), Outcome::Done, "{number} {did}");
                    state = State::Idle;
                }
            },
        }
        if !closes {
            self.handles[number] = Some((handle, state));
        }
        format!("{number} {did}")
    }

    fn when(&self, free: bool) -> Outcome {
        if free { Outcome::Done } else { Outcome::Busy }
    }
}

fn run(mode: Mode, handles: &[usize], steps: usize, mut seed: u64) {
    let mut model = Model { db: Db::new(mode), handles: (0..8).map(|_| None).collect(), committed: 0 };
    let mut past = Vec::new();
    for _ in 0..steps {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = handles[(seed >> 33) as usize % handles.len()];
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.step(number, seed >> 40)));
        let Ok(did) = outcome else {
            panic!("after {} steps, the last: {:?}", past.len(), &past[past.len().saturating_sub(12)..])
        };
        past.push(did);
        if mode == Mode::Wal {
            let in_use = model.handles.iter().flatten().next().is_some();
            assert_eq!(model.db.wal().exists(), in_use, "after {:?}", &past[past.len().saturating_sub(12)..]);
        }
    }
}

scenarios! {
    eight_handles_obey_the_model_in_wal, FailsWithout, {
        run(Mode::Wal, &[0, 1, 2, 3, 4, 5, 6, 7], 1500, 1);
    }
    eight_handles_obey_the_model_in_rollback, FailsWithout, {
        run(Mode::Rollback, &[0, 1, 2, 3, 4, 5, 6, 7], 1500, 2);
    }
    few_handles_obey_the_model_in_wal, FailsWithout, {
        for seed in 0..2 {
            run(Mode::Wal, &[0, 1, 4, 6], 400, seed);
            run(Mode::Wal, &[0, 4, 6], 400, seed);
            run(Mode::Wal, &[0, 6], 200, seed);
        }
    }
    few_handles_obey_the_model_in_rollback, FailsWithout, {
        for seed in 0..2 {
            run(Mode::Rollback, &[0, 1, 4, 6], 400, seed);
            run(Mode::Rollback, &[0, 4, 6], 400, seed);
        }
    }
}
