//! `migrate`, as people and programs use it.

use serde_json::{Value as Json, json};

use crate::world::World;

fn sums(document: &Json, side: &str) -> Vec<Json> {
    document["tables"].as_array().unwrap().iter().map(|table| table[side].clone()).collect()
}

#[test]
fn a_file_is_copied_and_the_copy_is_compared() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?", "And the lighthouse?"]);
    let (from, to) = (world.store(), world.folder().join("copy.db"));
    let line = format!("migrate --from {} --to {}", from.display(), to.display());
    let plan = world.run(&format!("{line} --dry-run")).expect_code(0);
    assert!(plan.out.contains("messages") && plan.err.contains("dry run") && !to.exists(), "{plan:?}");
    let done = world.run(&line).expect_code(0);
    assert!(done.err.contains("counts and checksums agree"), "{done:?}");
    let found = world.run(&format!("--db {} search lighthouse --json", to.display())).expect_code(0).json();
    assert_eq!(found["hits"].as_array().map(Vec::len), Some(1), "{found}");

    for again in ["", " --dry-run"] {
        let refused = world.run(&format!("{line}{again} --json")).expect_code(1).error();
        assert_eq!(refused["kind"], "refused");
        assert!(refused["hints"][0].as_str().is_some_and(|hint| hint.contains("--merge")), "{refused}");
    }
    world.say("s2", &["one more"]);
    let planned = world.run(&format!("{line} --merge --dry-run --json")).expect_code(0).json();
    let merged = world.run(&format!("{line} --merge --json")).expect_code(0).json();
    assert_eq!(merged["tables"][0]["copied"], 1, "{merged}");
    for field in ["copied", "same", "kept", "renumbered"] {
        assert_eq!(sums(&planned, field), sums(&merged, field), "{field}");
    }
}

#[test]
fn stores_that_are_named_wrongly_or_missing_make_nothing() {
    let world = World::new();
    let to = world.folder().join("copy.db");
    for (words, code, kind) in [
        (format!("--db x.db migrate --from a.db --to {} --json", to.display()), 2, "usage"),
        (format!("migrate --from :memory: --to {} --json", to.display()), 2, "usage"),
        (format!("migrate --from postgresql:x --to {} --json", to.display()), 2, "usage"),
        (format!("migrate --from /nowhere/state.db --to {} --json", to.display()), 1, "not-found"),
    ] {
        let refused = world.run(&words).expect_code(code).error();
        assert_eq!(refused["kind"], kind, "{words}: {refused}");
        assert!(!to.exists(), "{words}");
    }
    world.say("s1", &["one"]);
    let same = format!("migrate --from {0} --to {0} --json", world.store().display());
    assert_eq!(world.run(&same).expect_code(1).error()["kind"], "refused");
}

#[cfg(target_os = "linux")]
mod on_a_server {
    use hermes_state_testkit::{Server, ServerConfig, shared};

    use super::*;
    use crate::world::Outcome;

    #[test]
    fn a_plan_for_a_server_makes_no_schema_and_a_store_there_is_not_written_over() {
        let Some(server) = shared() else { return };
        let (world, space) = (World::new(), server.fresh());
        world.say("s1", &["Where is the harbour?"]);
        let line = format!("migrate --from {} --to {} --json", world.store().display(), space.url());
        let plan = world.run(&format!("{line} --dry-run")).expect_code(0).json();
        assert_eq!((&plan["dry_run"], &plan["tables"][1]["copied"]), (&json!(true), &json!(1)), "{plan}");
        let made = server.psql(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", space.schema()));
        assert_eq!(made, "0", "planning made the schema");

        let theirs = crate::world::line("user", "already here");
        world.run_with_input(&format!("record --session theirs --db {}", space.url()), theirs).expect_code(0);
        for again in ["", " --dry-run"] {
            let refused = world.run(&format!("{line}{again}")).expect_code(1).error();
            assert_eq!(refused["kind"], "refused");
            assert!(refused["message"].as_str().unwrap().contains("is not empty"), "{refused}");
        }
        let list = world.run(&format!("list --json --db {}", space.url())).expect_code(0).json();
        let ids: Vec<&Json> = list["sessions"].as_array().unwrap().iter().map(|session| &session["id"]).collect();
        assert_eq!(ids, [&json!("theirs")]);
        let merged = world.run(&format!("{line} --merge")).expect_code(0).json();
        assert_eq!((&merged["merged"], &merged["tables"][1]["renumbered"]), (&json!(true), &json!(1)), "{merged}");
    }

    #[test]
    fn a_store_goes_to_a_server_and_back_without_showing_its_password() {
        const SECRET: &str = "Kublai-9";
        if shared().is_none() {
            return;
        }
        let server = Server::start_with(&ServerConfig::new().password(SECRET)).unwrap();
        let world = World::new();
        world.say("s1", &["Where is the harbour?"]);
        let with = server.url();
        let without = with.replace(&format!(":{SECRET}"), "");
        assert!(with.contains(SECRET) && !without.contains(SECRET));
        let run = |password: Option<&str>, words: &str| {
            let mut command = world.command(words);
            let outcome =
                Outcome::of(command.envs(password.map(|password| ("PGPASSWORD", password))).output().unwrap());
            assert!(!format!("{outcome:?}").contains(SECRET), "{words}: {outcome:?}");
            outcome
        };
        let file = world.store().display().to_string();
        for (number, (password, url)) in [(None, &with), (Some(SECRET), &without)].into_iter().enumerate() {
            let url = format!("{url}?schema=store_{number}");
            run(password, &format!("migrate --from {file} --to {url} --dry-run")).expect_code(0);
            let there = run(password, &format!("migrate --from {file} --to {url} --json")).expect_code(0).json();
            // A copy on the same server, both URLs with the password of the variable.
            let beside = format!("{}?schema=beside_{number}", url.split('?').next().unwrap());
            let beside = run(password, &format!("migrate --from {url} --to {beside} --json")).expect_code(0).json();
            assert_eq!(beside["from"], json!(format!("{without}?schema=store_{number}")));
            let found = run(password, &format!("--db {url} search harbour --json")).expect_code(0).json();
            assert_eq!(found["hits"].as_array().map(Vec::len), Some(1), "{found}");
            let back = world.folder().join(format!("back_{number}.db"));
            let line = format!("migrate --from {url} --to {}", back.display());
            let planned = run(password, &format!("{line} --dry-run --json")).expect_code(0).json();
            assert!(!back.exists());
            let home = run(password, &format!("{line} --json")).expect_code(0).json();
            assert_eq!(sums(&there, "source_checksum"), sums(&home, "target_checksum"));
            assert_eq!(sums(&planned, "copied"), sums(&home, "copied"));
            // Refusals name source and target.
            for words in [line.clone(), format!("migrate --from {file} --to {url}"), format!("{line} --db {url}")] {
                let refused = run(password, &words);
                assert!(matches!(refused.code, Some(1 | 2)) && refused.out.is_empty(), "{words}: {refused:?}");
            }
            assert_eq!(run(password, &format!("--db {} status --json", back.display())).json()["messages"], 1);
        }
        // Without any password, as with a wrong one, the server refuses, and no file is made.
        for password in [None, Some("Kublai-8")] {
            let line = format!("migrate --from {without} --to {} --json", world.folder().join("never.db").display());
            let refused = run(password, &line).expect_code(1).error();
            assert!(refused["message"].as_str().unwrap().contains("refuses the user"), "{refused}");
            assert!(!world.folder().join("never.db").exists());
        }
    }
}
