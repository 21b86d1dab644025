//! Searching messages.

use hermes_state::{NewMessage, NewSession, SearchHit, SearchOptions, SearchSort};
use proptest::test_runner::{Config as ProptestConfig, TestRunner};

use crate::world::{World, on_each_engine, on_each_engine_and_index};

/// What these tests say and ask.
trait Searching: Sized {
    /// With one session `s` whose user said these texts.
    fn saying(self, texts: &[&str]) -> Self;
    fn say(&self, session: &str, role: &str, text: &str) -> i64;
    fn ids_with(&self, query: &str, options: &SearchOptions) -> Vec<i64>;

    fn ids(&self, query: &str) -> Vec<i64> {
        self.ids_with(query, &SearchOptions::default())
    }

    /// The ids of the hits in ascending order.
    fn set(&self, query: &str, options: &SearchOptions) -> Vec<i64> {
        let mut ids = self.ids_with(query, options);
        ids.sort_unstable();
        ids
    }
}

impl Searching for World {
    fn saying(self, texts: &[&str]) -> Self {
        let world = self.with_session();
        for text in texts {
            world.say("s", "user", text);
        }
        world
    }

    fn say(&self, session: &str, role: &str, text: &str) -> i64 {
        self.append_message(session, NewMessage::new(role, text)).unwrap().stored().expect("stored")
    }

    fn ids_with(&self, query: &str, options: &SearchOptions) -> Vec<i64> {
        ids(&self.search_messages(query, options).unwrap())
    }
}

fn ids(hits: &[SearchHit]) -> Vec<i64> {
    hits.iter().map(|hit| hit.id).collect()
}

fn of_role(role: &str) -> SearchOptions {
    SearchOptions { role_filter: vec![role.into()], ..SearchOptions::default() }
}

fn page(limit: i64, offset: i64) -> SearchOptions {
    SearchOptions { limit, offset, ..SearchOptions::default() }
}

fn contents(hit: &SearchHit) -> Vec<&str> {
    hit.context.iter().map(|line| line.content.as_str()).collect()
}

fn everyday_punctuation_is_found_as_it_stands(world: World) {
    let world = world.saying(&[
        "see issue #4711 for the crash",
        "run tools/build.sh twice",
        "mail ops@harbour.example today",
        "rate rose 37% again",
        "isn't it odd?",
        "costs $9 net",
        "left a;b here",
        "C++17 was used",
        "open the .editorconfig file",
        "use rm -r carefully",
        "pass --dry-run please",
        "tag v2.14.3-rc1 now",
        "call foo::bar<baz> once",
        "path C:\\work\\x9 lost",
        "[todo] later",
    ]);
    let queries = [
        "#4711",
        "tools/build.sh",
        "ops@harbour.example",
        "37%",
        "isn't",
        "$9",
        "a;b",
        "C++17",
        ".editorconfig",
        "rm -r",
        "--dry-run",
        "v2.14.3-rc1",
        "foo::bar<baz>",
        "C:\\work\\x9",
        "[todo]",
    ];
    for (index, query) in queries.iter().enumerate() {
        assert_eq!(world.ids(query), [i64::try_from(index).unwrap() + 1], "{query}");
    }
    for query in ["AND", "NOT", "\"unbalanced", "*", "col:term", "(((", "\0", "\"a\0b\"", "%", "_"] {
        let results = world.search_messages(query, &SearchOptions::default()).unwrap();
        assert!(!results.degraded, "{query}");
        assert_eq!(results.len(), usize::from(query == "%"), "{query}");
    }
    for query in ["", " \u{1c}\u{3000}"] {
        assert!(world.ids(query).is_empty());
    }
}

fn a_literal_search_wants_the_pieces_themselves(world: World) {
    let world = world.saying(&["costs 9 net", "costs $9 net", "price: net, then $9.", "see ops at harbour.example"]);
    assert_eq!(world.ids("$9"), [2, 3]);
    assert_eq!(world.ids("NET, $9"), [3], "case is ignored and all pieces are required");
    assert!(world.ids("ops@harbour.example").is_empty());
    let structured = serde_json::json!([{"type": "text", "text": "run tools/build.sh"}]);
    world.append_message("s", NewMessage::new("user", structured)).unwrap();
    assert_eq!(world.ids("tools/build.sh"), [5]);
}

fn a_literal_search_goes_on_within_words(world: World) {
    let world = world.saying(&["run tools/build.sh twice", "-> only signs <-"]);
    let tool = world.say("s", "tool", "ls tools/list.sh");
    assert_eq!(world.ids("ools/build.s"), [1]);
    assert_eq!(world.ids("<-"), [2]);
    assert_eq!(world.ids_with("ools/list.s", &of_role("tool")), [tool]);
}

fn short_and_mixed_scripts_are_found(world: World) {
    let world = world.saying(&[
        "下周去杭州西湖拍照",
        "灵隐寺门票多少钱",
        "龙井茶已经买好了",
        "请检查redis缓存的配置",
        "오류코드q7확인 부탁",
        "明日の会議は十時からです",
        "nothing related",
    ]);
    let tool = world.say("s", "tool", "龙井 库存 12");
    for (query, ids) in [
        ("西湖 OR 灵隐 OR 龙井", vec![1, 2, 3]),
        ("茶", vec![3]),
        ("redis", vec![4]),
        ("缓存 配置", vec![4]),
        ("q7", vec![5]),
        ("会議", vec![6]),
        ("杭州西湖", vec![1]),
        ("十時から", vec![6]),
        ("西湖 NOT 灵隐", vec![1]),
        ("100%", vec![]),
        ("西湖 灵隐", vec![]),
        ("西湖 OR 灵隐 NOT 门票", vec![1]),
        ("龙井茶 AND 已经买", vec![3]),
    ] {
        assert_eq!(world.set(query, &of_role("user")), ids, "{query}");
    }
    assert_eq!(world.ids_with("龙井", &of_role("tool")), [tool]);
    assert_eq!(world.set("龙井", &SearchOptions::default()), if pairs(&world) { vec![3] } else { vec![3, tool] });
}

fn a_short_word_is_not_found_within_a_longer_one(world: World) {
    let world = world.saying(&["오류코드q78확인", "코드q7", "aq7", "q7코드 redis缓存"]);
    assert_eq!(world.set("q7", &SearchOptions::default()), [2, 4]);
    assert_eq!(world.set("q7 AND redis", &SearchOptions::default()), [4]);
    assert_eq!(world.set("q7 NOT redis", &SearchOptions::default()), [2]);
    assert_eq!(world.ids_with("q7", &page(1, 1)), [2]);
    assert!(world.ids_with("q7", &page(1, 2)).is_empty());
}

fn scans_see_percent_and_underscore_as_they_are_and_ignore_case(world: World) {
    let world = world.saying(&["Redis缓存100%", "redis缓存1000", "a_b茶", "axb茶"]);
    assert_eq!(world.set("缓存 100%", &SearchOptions::default()), [1]);
    assert_eq!(world.set("REDIS 缓存", &SearchOptions::default()), [1, 2]);
    assert_eq!(world.ids("a_b茶"), [3]);
    let hit = &world.search_messages("缓存1", &page(1, 1)).unwrap()[0];
    assert_eq!(hit.snippet.as_deref(), Some("Redis缓存100%"), "newest first, without marks");
}

fn text_behind_a_nul_is_found(world: World) {
    let world = world.saying(&["x\0y porcupine 茶", "run a/b\0c/d"]);
    assert_eq!(world.ids("porcupine"), [1]);
    assert_eq!(world.ids("茶"), [1]);
    assert_eq!(world.ids("c/d"), [2]);
}

fn words_prefixes_phrases_and_operators_mean_what_they_do_in_the_index(world: World) {
    let world = world.saying(&["the red lamp", "a lamppost, red", "blue lamp red"]);
    for (query, ids) in [
        ("red lamp", vec![1, 3]),
        ("\"red lamp\"", vec![1]),
        ("lamp*", vec![1, 2, 3]),
        ("lamp NOT blue", vec![1]),
        ("blue OR lamppost", vec![2, 3]),
        ("lamp and red", vec![]),
        ("red-lamp", vec![1]),
    ] {
        assert_eq!(world.set(query, &SearchOptions::default()), ids, "{query}");
    }
}

fn a_word_within_words_is_found_only_where_no_row_has_it_by_itself(world: World) {
    let world = world.saying(&["the harbour", "arbour", "harbours"]);
    assert_eq!(world.ids("arbour"), [2]);
    assert!(world.ids_with("arbour", &page(5, 1)).is_empty(), "paging on never turns to longer words");
    assert_eq!(world.set("arbou", &SearchOptions::default()), [1, 2, 3]);
    assert_eq!(world.ids_with("arbou", &page(2, 2)).len(), 1);
    assert!(world.ids_with("arbou", &of_role("tool")).is_empty());
}

fn a_hit_tells_where_it_is_from(world: World) {
    let world = world.with_session();
    let long = format!("{} needle {}", "before ".repeat(60), "after ".repeat(60));
    world.append_message("s", NewMessage::new("tool", long).tool_name("grep").timestamp(12.5)).unwrap();
    let hits = world.search_messages("needle", &SearchOptions::default()).unwrap();
    let started = world.session("s").unwrap().unwrap().started_at();
    let hit = &hits[0];
    assert_eq!((hit.id, hit.session_id.as_str(), hit.role.as_str(), hit.timestamp), (1, "s", "tool", 12.5));
    assert_eq!(
        (hit.tool_name.as_deref(), hit.source.as_str(), hit.model.as_deref()),
        (Some("grep"), "cli", Some("large-1"))
    );
    assert_eq!(hit.session_started, started);
    let snippet = hit.snippet.as_deref().unwrap();
    assert!(
        snippet.starts_with("...before") && snippet.contains(">>>needle<<<") && snippet.ends_with("after..."),
        "{snippet}"
    );
    assert_eq!(snippet.split_whitespace().count(), 40);
    let newest = SearchOptions { sort: Some(SearchSort::Newest), ..SearchOptions::default() };
    assert_eq!(world.search_messages("needle", &newest).unwrap()[0].snippet.as_deref(), Some(snippet));
    assert_eq!(hit.context[0].content.chars().count(), 200);
}

fn filters_orders_and_pages(world: World) {
    let world = world.with_session();
    world.create_session(NewSession::new("t", "telegram")).unwrap();
    for (session, role, text, time) in [
        ("s", "user", "lamp one two three four five six seven", 30.0),
        ("t", "user", "lamp lamp lamp", 10.0),
        ("s", "assistant", "lamp one two three four", 20.0),
        ("t", "tool", "lamp one", 40.0),
    ] {
        world.append_message(session, NewMessage::new(role, text).timestamp(time)).unwrap();
    }
    let with = |options: SearchOptions| world.ids_with("lamp", &options);
    let options = SearchOptions::default;
    assert_eq!(with(options()), [2, 4, 3, 1], "the best first");
    assert_eq!(with(SearchOptions { sort: Some(SearchSort::Newest), ..options() }), [4, 1, 3, 2]);
    assert_eq!(with(SearchOptions { sort: Some(SearchSort::Oldest), ..options() }), [2, 3, 1, 4]);
    assert_eq!(with(SearchOptions { source_filter: Some(vec!["telegram".into()]), ..options() }), [2, 4]);
    assert!(with(SearchOptions { source_filter: Some(vec![]), ..options() }).is_empty());
    assert_eq!(with(SearchOptions { exclude_sources: vec!["telegram".into()], ..options() }), [3, 1]);
    assert_eq!(with(SearchOptions { role_filter: vec!["tool".into(), "assistant".into()], ..options() }), [4, 3]);
    assert_eq!(with(page(2, 1)), [4, 3]);
    assert_eq!(with(page(-1, -1)), [2, 4, 3, 1]);
    assert!(with(page(0, 0)).is_empty() && with(page(5, 4)).is_empty());
}

fn hits_behind_many_that_a_filter_drops_are_found(world: World) {
    let world = world.with_session();
    world.create_session(NewSession::new("t", "telegram")).unwrap();
    let said = |count: i64| (0..count).map(|n| NewMessage::new("user", format!("harbour {n} 杭州西湖"))).collect();
    let wanted = world.append_messages("s", said(230)).unwrap().stored().expect("stored");
    world.append_messages("t", said(230)).unwrap();
    for query in ["harbour", "\"harbour 7\" OR harbour", "杭州西湖"] {
        let here = |limit, offset| SearchOptions { exclude_sources: vec!["telegram".into()], ..page(limit, offset) };
        assert_eq!(world.set(query, &here(500, 0)), wanted, "{query}");
        let pages = (0..24).flat_map(|number| world.ids_with(query, &here(10, 10 * number)));
        let mut paged: Vec<i64> = pages.collect();
        paged.sort_unstable();
        assert_eq!(paged, wanted, "{query}");
        assert_eq!(world.ids_with(query, &page(500, 0)).len(), 460, "{query}");
    }
}

fn context_follows_the_order_of_insertion(world: World) {
    let world = world.with_session();
    let base = 1_750_000_000.0;
    for (role, text, time) in [
        ("assistant", "calling k1 and k2", base),
        ("tool", "result k1", base + 0.10),
        ("tool", "result k2", base + 0.11),
        ("assistant", "calling k3 zebra", base + 0.05),
        ("tool", "result k3", base - 3600.0),
        ("assistant", "done", base + 0.2),
    ] {
        world.append_message("s", NewMessage::new(role, text).timestamp(time)).unwrap();
    }
    let hits = world.search_messages("zebra", &SearchOptions::default()).unwrap();
    assert_eq!(contents(&hits[0]), ["result k2", "calling k3 zebra", "result k3"]);
    let hits = world.search_messages("done", &SearchOptions::default()).unwrap();
    assert_eq!(contents(&hits[0]), ["result k3", "done"]);
}

fn neighbours_are_found_far_away(world: World) {
    let world = world.saying(&["first"]);
    world.create_session(NewSession::new("t", "cli")).unwrap();
    let noise = |_| NewMessage::new("user", "noise");
    world.append_messages("t", (0..250).map(noise).collect()).unwrap();
    world.say("s", "user", "needle");
    world.append_messages("t", (0..250).map(noise).collect()).unwrap();
    world.say("s", "user", "last");
    let hits = world.search_messages("needle", &SearchOptions::default()).unwrap();
    assert_eq!(contents(&hits[0]), ["first", "needle", "last"]);
}

fn rewound_messages_are_hidden_from_hits_and_context(world: World) {
    let mut world = world.saying(&["one", "two", "three", "four", "undo zebrafinch2 茶", "answer"]);
    world.behind_its_back("UPDATE messages SET active = 0 WHERE id >= 5");
    world.say("s", "user", "fresh");
    assert!(world.ids("zebrafinch2").is_empty());
    let audit = SearchOptions { include_inactive: true, ..SearchOptions::default() };
    assert_eq!(world.ids_with("zebrafinch2", &audit), [5]);
    let around = |query: &str, options: &SearchOptions| {
        let hits = world.search_messages(query, options).unwrap();
        contents(&hits[0]).join(",")
    };
    assert_eq!(around("four", &SearchOptions::default()), "three,four,fresh");
    assert_eq!(around("four", &audit), "three,four,undo zebrafinch2 茶");
    assert!(world.ids("茶").is_empty(), "scans hide them too");
    assert_eq!(world.ids_with("茶", &audit), [5]);
}

fn archived_messages_are_found(world: World) {
    let mut world = world.saying(&["heron", "next"]);
    world.behind_its_back("UPDATE messages SET active = 0, compacted = 1 WHERE id = 1");
    assert_eq!(world.ids("heron"), [1]);
    let hits = world.search_messages("next", &SearchOptions::default()).unwrap();
    assert_eq!(contents(&hits[0]), ["heron", "next"]);
}

fn a_handle_that_only_looks_searches(world: World) {
    let world = world.saying(&["heron", "下周去杭州西湖拍照"]);
    let looking = world.looking();
    for (query, id) in [("heron", 1), ("西湖", 2), ("杭州西湖", 2), ("ero", 1)] {
        assert_eq!(ids(&looking.search_messages(query, &SearchOptions::default()).unwrap()), [id], "{query}");
    }
}

fn very_many_terms_are_searched(world: World) {
    let world = world.saying(&["b 茶"]);
    let many = |joiner: &str, terms: usize| vec!["茶"; terms].join(joiner);
    for query in [many(" ", 1000), many(" OR ", 400), many(" NOT ", 300)] {
        let results = world.search_messages(&query, &SearchOptions::default()).unwrap();
        assert_eq!(results.len(), usize::from(!query.contains("NOT")));
    }
    for query in [vec!["b"; 1000].join(" "), format!("{} ;", vec!["b"; 900].join(" ")), vec!["b"; 400].join(" OR ")] {
        let results = world.search_messages(&query, &SearchOptions::default()).unwrap();
        assert_eq!((results.len(), results.degraded), (usize::from(!query.contains(';')), false));
    }
}

fn diagnostics_name_who_answers(world: World) {
    let world = world.with_session();
    for (query, path) in [("()", "empty"), ("a/b", "fts5"), ("杭州西湖", "trigram"), ("西湖", "like_scan")] {
        assert_eq!(world.describe_search_path(query).unwrap(), path);
    }
}

/// Characters that mean something somewhere on the way of a query, and some that mean nothing anywhere.
const AWKWARD: &str = "[\"*+(){}:^.\\-_'%\\\\\u{0}\u{1a} \u{a0}aB7é茶西\u{3000}🙂\u{301}ſANDORT]{0,12}";

fn no_query_fails(world: World) {
    let world = world.saying(&["aB7 é茶西 AND", "B_7-a.B 🙂'%"]);
    let mut runner = TestRunner::new(ProptestConfig { cases: 384, ..ProptestConfig::default() });
    let checked = runner.run(&AWKWARD, |query| {
        for options in [page(20, 0), page(1, 1), of_role("tool")] {
            let results = world.search_messages(&query, &options);
            proptest::prop_assert!(results.as_ref().is_ok_and(|found| !found.degraded), "{query:?}: {results:?}");
        }
        Ok(())
    });
    checked.unwrap();
}

/// FTS5's own snippet takes minutes for such a message; the search must not.
fn a_long_message_of_one_word_is_found_with_the_text_around_it(world: World) {
    let db = world.with_session();
    let text = format!("{}{}", "x".repeat(50), " lorem ipsum".repeat(100_000));
    db.append_message("s", NewMessage::new("user", text)).expect("appends");
    for sort in [None, Some(hermes_state::SearchSort::Newest)] {
        let options = SearchOptions { sort, ..SearchOptions::default() };
        let hits = db.search_messages("lorem", &options).expect("searches");
        let snippet = hits[0].snippet.as_deref().expect("a snippet");
        assert!(snippet.starts_with("xx") && snippet.contains("lorem ipsum"), "{snippet}");
        assert_eq!(snippet.chars().count(), 120);
    }
}

/// To FTS5 `*id` is no search but a question about itself, which it answers with the id of some row.
fn a_star_that_cleaning_brings_to_the_front_asks_nothing(world: World) {
    let world = world.saying(&["heron", "the text AND*reads as it stands"]);
    for query in ["AND*id", "OR*rank", "NOT*integrity-check"] {
        assert!(world.ids(query).is_empty(), "{query}");
    }
    assert_eq!(world.ids("AND*reads"), [2], "it is looked for as it stands");
}

fn a_message_that_another_program_removes_is_found_no_more(world: World) {
    let mut world = world.saying(&["red heron", "red lamp"]);
    world.behind_its_back("DELETE FROM messages WHERE id = 1");
    assert_eq!(world.ids("red"), [2]);
    assert!(world.ids("heron").is_empty() && world.ids("ero").is_empty());
}

/// What people paste: versions, paths, addresses, code, prices, signs.
fn more_of_what_people_paste_is_found_as_it_stands(world: World) {
    let texts = [
        "server at 10.0.0.254:8443 is up",
        "see https://harbour.example/a/b?c=d&e=f today",
        "total was €12.50, not more",
        "set PATH=$HOME/bin:$PATH first",
        "user said: \u{201c}don\u{2019}t\u{201d} again",
        "regex ^\\d+(\\.\\d+)?$ fails",
        "commit 3f2a9c1~2 broke it",
        "key is {\"a\": [1, 2]} there",
        "call it at +49 (30) 1234-567",
        "branch feature/x_y-z merged",
        "a <b>bold</b> word",
        "ratio 3:2 & 50/50",
        "e-mail me @ops, please!",
        "it's the ship's rope",
        "#!/bin/sh -eu",
    ];
    let world = world.saying(&texts);
    for (index, query) in [
        "10.0.0.254:8443",
        "https://harbour.example/a/b?c=d&e=f",
        "€12.50,",
        "PATH=$HOME/bin:$PATH",
        "don\u{2019}t",
        "^\\d+(\\.\\d+)?$",
        "3f2a9c1~2",
        "{\"a\": [1, 2]}",
        "1234-567",
        "feature/x_y-z",
        "<b>bold</b>",
        "50/50",
        "@ops,",
        "ship's",
        "#!/bin/sh",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(world.ids(query), [i64::try_from(index).unwrap() + 1], "{query}");
    }
    for query in ["10.0.0.255:8443", "€12.51,", "boat's", "50/51", "#!/bin/zsh", "AND AND", "\"\"", "{}"] {
        assert!(world.ids(query).is_empty(), "{query}");
    }
}

/// Scripts without blanks, alone and glued to others, with operators, and short.
fn more_short_and_mixed_scripts_are_found(world: World) {
    let world = world.saying(&[
        "東京タワーの展望台へ行く",
        "京都の紅葉は十一月が見頃",
        "서울역에서 만나요 v2확정",
        "服务器GPU温度过高，请降频",
        "ファイルをzipで圧縮する",
        "买了苹果、香蕉和梨",
        "plain words only, nothing else",
        "𠮷野家で昼食",
    ]);
    let tool = world.say("s", "tool", "京都 天気 12度");
    for (query, ids) in [
        ("東京 OR 京都", vec![1, 2]),
        ("展望台", vec![1]),
        ("紅葉 NOT 東京", vec![2]),
        ("梨", vec![6]),
        ("v2", vec![3]),
        ("gpu", vec![4]),
        ("zip", vec![5]),
        ("温度 降频", vec![4]),
        ("温度 AND 京都", vec![]),
        ("서울역", vec![3]),
        ("서울 OR 香蕉", vec![3, 6]),
        ("圧縮する", vec![5]),
        ("苹果、香蕉", vec![6]),
        ("十一月 NOT 紅葉", vec![]),
        ("野家", vec![8]),
        ("words NOT 東京", vec![7]),
    ] {
        assert_eq!(world.set(query, &of_role("user")), ids, "{query}");
    }
    assert_eq!(world.ids_with("京都", &of_role("tool")), [tool]);
    assert_eq!(world.set("京都", &SearchOptions::default()), if pairs(&world) { vec![2] } else { vec![2, tool] });
}

/// Whether the index of pairs answers here; it leaves tool rows out.
fn pairs(world: &World) -> bool {
    world.search_indexes().unwrap().cjk
}

on_each_engine_and_index! {
    more_of_what_people_paste_is_found_as_it_stands
    more_short_and_mixed_scripts_are_found
    no_query_fails
    everyday_punctuation_is_found_as_it_stands
    a_literal_search_wants_the_pieces_themselves
    a_literal_search_goes_on_within_words
    short_and_mixed_scripts_are_found
    text_behind_a_nul_is_found
}

on_each_engine! {
    a_short_word_is_not_found_within_a_longer_one
    a_star_that_cleaning_brings_to_the_front_asks_nothing
    a_message_that_another_program_removes_is_found_no_more
    a_long_message_of_one_word_is_found_with_the_text_around_it
    scans_see_percent_and_underscore_as_they_are_and_ignore_case
    words_prefixes_phrases_and_operators_mean_what_they_do_in_the_index
    a_word_within_words_is_found_only_where_no_row_has_it_by_itself
    a_hit_tells_where_it_is_from
    filters_orders_and_pages
    hits_behind_many_that_a_filter_drops_are_found
    context_follows_the_order_of_insertion
    neighbours_are_found_far_away
    rewound_messages_are_hidden_from_hits_and_context
    archived_messages_are_found
    a_handle_that_only_looks_searches
    very_many_terms_are_searched
    diagnostics_name_who_answers
}
