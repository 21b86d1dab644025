//! `migrate`, as people and programs use it.

use crate::world::World;

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

    let refused = world.run(&format!("{line} --json")).expect_code(1).error();
    assert_eq!(refused["kind"], "refused");
    assert!(refused["hints"][0].as_str().is_some_and(|hint| hint.contains("--merge")), "{refused}");
    world.say("s2", &["one more"]);
    let merged = world.run(&format!("{line} --merge --json")).expect_code(0).json();
    assert_eq!(merged["tables"][0]["copied"], 1, "{merged}");
    world.run("--db x.db migrate --from a.db --to b.db").expect_code(2);
}

#[test]

fn a_store_goes_to_a_server_and_back_without_showing_its_password() {
    let Some(server) = hermes_state_testkit::shared() else { return };
    let (world, space) = (World::new(), server.fresh());
    world.say("s1", &["Where is the harbour?"]);
    let there = format!("migrate --from {} --to {} --json", world.store().display(), space.url());
    let there = world.run(&there).expect_code(0).json();
    let back = world.folder().join("back.db");
    let home = world.run(&format!("migrate --from {} --to {} --json", space.url(), back.display())).expect_code(0);
    let sums = |document: &serde_json::Value, side: &str| {
        let tables = document["tables"].as_array().unwrap().iter();
        tables.map(|table| table[side].clone()).collect::<Vec<_>>()
    };
    assert_eq!(sums(&there, "source_checksum"), sums(&home.json(), "target_checksum"));
    if let Some((_, password)) = space.url().split('@').next().and_then(|front| front.rsplit_once(':'))
        && password.len() > 3
    {
        assert!(!home.out.contains(password) && !home.err.contains(password));
    }
}
