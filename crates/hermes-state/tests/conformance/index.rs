//! The search indexes: rebuilding, merging, bringing up to date.

use std::time::Duration;

use hermes_state::{Error, NewMessage, OptimizeOptions, OptimizePhase, SearchOptions, StepPace};

use crate::world::{World, on_each_engine};

/// Without pauses: what is tested is not how long it takes.
const AT_ONCE: StepPace = StepPace { rows: 500, duty_factor: 0.0, min_pause: Duration::ZERO };

/// A store in order, with messages.
fn filled(world: World, messages: usize) -> World {
    let world = world.with_session();
    if world.is_older() {
        let options = OptimizeOptions { vacuum: false, pace: AT_ONCE };
        world.optimize_fts_storage(&options, &mut |_| Ok(())).expect("is brought up to date");
    }
    let text = |n| NewMessage::new(if n % 3 == 0 { "tool" } else { "user" }, format!("lamp marker{n}q 杭州西湖"));
    world.append_messages("s", (0..messages).map(text).collect()).unwrap();
    world
}

fn found(world: &World, query: &str) -> usize {
    let results = world.search_messages(query, &SearchOptions { limit: -1, ..SearchOptions::default() }).unwrap();
    assert!(!results.degraded, "{query}");
    results.len()
}

fn a_store_in_order_has_nothing_to_do(world: World) {
    let world = filled(world, 5);
    assert_eq!((world.fts_rebuild_status().unwrap(), world.fts_cjk_rebuild_status().unwrap()), (None, None));
    assert!(!world.fts_rebuild_step(500).unwrap() && !world.fts_cjk_rebuild_step(500).unwrap());
    assert!(!world.fts_optimize_available().unwrap());
}

fn merging_changes_no_result_and_may_be_repeated(world: World) {
    let world = filled(world, 40);
    let before = world.search_messages("lamp", &SearchOptions::default()).unwrap();
    let merged = world.optimize_fts().unwrap();
    assert!(merged >= 1);
    assert_eq!(world.optimize_fts().unwrap(), merged);
    assert_eq!(world.search_messages("lamp", &SearchOptions::default()).unwrap(), before);
}

fn rebuilding_finds_everything_again(world: World) {
    let world = filled(world, 40);
    let rebuilt = world.rebuild_fts(StepPace { rows: 7, ..AT_ONCE }).unwrap();
    assert!(rebuilt >= 1);
    assert_eq!(world.fts_rebuild_status().unwrap(), None);
    assert_eq!((found(&world, "lamp"), found(&world, "marker7q"), found(&world, "arker39q")), (40, 1, 0));
    assert_eq!(found(&world, "arker38q"), 1, "parts of words too, but of tools");
    world.append_message("s", NewMessage::new("user", "another lamp")).unwrap();
    assert_eq!(found(&world, "lamp"), 41);
    assert!(!world.fts_optimize_available().unwrap());
}

fn bringing_up_to_date_runs_through_its_phases_whatever_there_is_to_do(world: World) {
    let world = filled(world, 3);
    let mut phases = Vec::new();
    let options = OptimizeOptions { vacuum: false, pace: AT_ONCE };
    let rewritten = world.optimize_fts_storage(&options, &mut |progress| {
        phases.push(progress.phase);
        Ok(())
    });
    assert_eq!(rewritten.unwrap(), None);
    use OptimizePhase::{Backfill, Done, Teardown};
    assert_eq!(phases, [Backfill, Backfill, Teardown, Done]);
    assert_eq!(found(&world, "marker2q"), 1);
}

fn progress_that_fails_ends_it(world: World) {
    let world = filled(world, 3);
    let stop = |_: &_| Err(Error::Invalid("enough".into()));
    let outcome = world.optimize_fts_storage(&OptimizeOptions::default(), &mut { stop });
    assert!(matches!(outcome, Err(Error::Invalid(text)) if text == "enough"));
    assert_eq!(found(&world, "lamp"), 3);
}

fn a_handle_that_only_looks_changes_no_index(world: World) {
    let world = filled(world, 3);
    let looking = world.looking();
    assert!(!looking.fts_optimize_available().unwrap() && !looking.fts_rebuild_step(500).unwrap());
    assert_eq!((looking.optimize_fts().unwrap(), looking.rebuild_fts(AT_ONCE).unwrap()), (0, 0));
    let refused = looking.optimize_fts_storage(&OptimizeOptions::default(), &mut |_| Ok(()));
    assert!(matches!(refused, Err(Error::ReadOnly { .. })));
}

fn a_search_that_may_take_its_time_finds_what_one_without_end_finds(world: World) {
    let world = filled(world, 30);
    for query in ["lamp", "marker7q", "西湖", "arker8q", "lamp;", "marker7q OR marker8q"] {
        let options = SearchOptions { limit: 7, offset: 1, ..SearchOptions::default() };
        let whole = world.search_messages(query, &options).unwrap();
        let bounded = SearchOptions { timeout: Some(Duration::from_secs(60)), ..options };
        assert_eq!(world.search_messages(query, &bounded).unwrap(), whole, "{query}");
        assert!(!whole.partial);
    }
}

fn a_search_whose_time_is_over_says_that_it_is_partial(world: World) {
    let world = filled(world, 30);
    for query in ["lamp", "西湖", "lamp;"] {
        let options = SearchOptions { timeout: Some(Duration::ZERO), ..SearchOptions::default() };
        let results = world.search_messages(query, &options).unwrap();
        assert!(results.partial && results.is_empty() && !results.degraded, "{query}: {results:?}");
    }
    assert_eq!(found(&world, "lamp"), 30, "the handle goes on");
}

fn what_can_neither_be_read_nor_looked_for_is_an_invalid_query(world: World) {
    let world = filled(world, 3);
    let blank = " ".repeat(2048);
    let refused = world.search_messages(&format!("{blank}lamp"), &SearchOptions::default());
    assert!(matches!(refused, Err(Error::InvalidQuery { .. })), "{refused:?}");
    assert_eq!(world.search_messages(&format!("{}lamp", &blank[4..]), &SearchOptions::default()).unwrap().len(), 3);
}

on_each_engine! {
    a_store_in_order_has_nothing_to_do
    merging_changes_no_result_and_may_be_repeated
    rebuilding_finds_everything_again
    bringing_up_to_date_runs_through_its_phases_whatever_there_is_to_do
    progress_that_fails_ends_it
    a_handle_that_only_looks_changes_no_index
    a_search_that_may_take_its_time_finds_what_one_without_end_finds
    a_search_whose_time_is_over_says_that_it_is_partial
    what_can_neither_be_read_nor_looked_for_is_an_invalid_query
}
