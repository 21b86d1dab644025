//! The demonstration. Slow on purpose: it waits out two locks of three seconds.

use crate::world::World;

#[test]
fn the_demonstration_loses_nothing_and_keeps_the_store_if_asked() {
    let world = World::new();
    let shown = world.run("demo --json --keep").expect_code(0);
    assert_eq!(shown.err, "", "no progress beside JSON");
    let report = shown.json();
    assert_eq!(report["ok"], true);
    assert_eq!(report["lost"], 0);
    assert_eq!(report["acknowledged"], report["found"]);
    assert_eq!(report["integrity"], "ok");
    assert_eq!(report["older_release_held_ms"].as_array().unwrap().len(), 2);
    assert!(report["longest_wait_seconds"].as_f64().unwrap() >= 2.5, "the locks were felt: {report:#}");
    assert!(report["seconds"].as_f64().unwrap() < 30.0);

    let store = report["store"].as_str().unwrap();
    let status = world.run(&format!("status --json --db {store}")).expect_code(0).json();
    assert_eq!(status["messages"], report["acknowledged"]);
    assert!(!world.folder().exists(), "the user's own store is not touched");
    std::fs::remove_dir_all(std::path::Path::new(store).parent().unwrap()).unwrap();
}

#[test]
fn without_a_command_the_demonstration_runs_and_points_to_the_help() {
    let shown = World::new().run("").expect_code(0);
    assert!(shown.out.contains("lost                               0\n"), "{shown:?}");
    assert!(shown.out.contains("`hermes-state --help` shows the rest"), "{shown:?}");
    assert!(shown.err.contains("the older release holds the write lock"), "{shown:?}");
}
