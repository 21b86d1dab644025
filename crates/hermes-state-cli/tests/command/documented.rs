//! The page, the help, the manual and the completions against the command itself.

use serde_json::Value as Json;

use crate::world::World;

const PAGE: &str = include_str!("../../../../docs/command.md");

/// The commands that the help names.
fn commands(world: &World) -> Vec<String> {
    let help = world.run("--help").expect_code(0).out;
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// The chapter of the page about a command.
fn chapter(command: &str) -> &'static str {
    let start =
        PAGE.find(&format!("\n## {command}\n")).unwrap_or_else(|| panic!("the page has no chapter on {command}"));
    PAGE[start + 4..].split("\n## ").next().unwrap()
}

#[test]
fn each_command_has_a_chapter_with_all_its_options() {
    let world = World::new();
    let commands = commands(&world);
    let expected = [
        "record",
        "list",
        "show",
        "search",
        "status",
        "who",
        "spool",
        "check",
        "doctor",
        "repair",
        "prune",
        "vacuum",
        "backup",
        "restore",
        "export",
        "import",
        "migrate",
        "demo",
        "completions",
        "man",
    ];
    assert_eq!(commands, expected);
    for command in &commands {
        let help = world.run(&format!("{command} --help")).expect_code(0).out;
        assert!(help.contains("Examples:\n  "), "{command} has no examples");
        let options = help.split("Options of every command").next().unwrap();
        for option in options.split_whitespace().filter(|word| word.starts_with("--") && *word != "--help") {
            assert!(chapter(command).contains(option), "{option} of {command} is not in its chapter");
        }
        assert!(PAGE.contains(&format!("[`{command}`](#{command})")));
    }
}

#[test]
fn each_json_field_is_in_the_chapter_of_its_command() {
    let world = World::new();
    let message = r#"{"role":"assistant","content":"harbour","tool_calls":[{"id":"k"}]}"#;
    let recorded = world.run_with_input("record --session s1 --json", message).expect_code(0).json();
    let (child, stdin) = world.start("record --session s2");
    let open = std::iter::repeat_with(|| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        world.run("status --json").expect_code(0).json()
    });
    let status = open.take(100).find(|status| status["open_by"].as_array().is_some_and(|users| !users.is_empty()));
    drop((child, stdin));
    #[cfg(target_os = "linux")]
    let on_server = hermes_state_testkit::shared().map(|server| {
        let space = server.fresh();
        let url = space.url();
        world.run_with_input(&format!("record --session s1 --db {url}"), message).expect_code(0);
        let doctor = world.run(&format!("doctor --json --db {url}")).expect_code(0).json();
        (world.run(&format!("status --json --db {url}")).expect_code(0).json(), doctor)
    });
    #[cfg(not(target_os = "linux"))]
    let on_server: Option<(Json, Json)> = None;
    let mut documents = vec![
        ("record", recorded),
        ("list", world.run("list --json").json()),
        ("show", world.run("show s1 --json").json()),
        ("search", world.run("search harbour --json").json()),
        ("status", status.expect("the other process is seen")),
        ("migrate", {
            let (from, to) = (world.store(), world.folder().join("copy.db"));
            world.run(&format!("migrate --from {} --to {} --json", from.display(), to.display())).json()
        }),
        ("who", world.run("who --json").json()),
        ("spool", world.run("spool list --json").json()),
        ("spool", world.run("spool replay --json").json()),
        ("spool", world.run("spool discard --all --yes --json").json()),
        ("check", world.run("check --json").json()),
        ("prune", world.run("prune --older-than 0s --state ended,open --dry-run --json").expect_code(0).json()),
        ("prune", world.run("prune --older-than 0s --dry-run --json").expect_code(0).json()),
        ("doctor", { world.run("doctor --json").json() }),
        ("vacuum", world.run("vacuum --json").json()),
        ("backup", world.run(&format!("backup {} --json", world.folder().join("b.db").display())).json()),
        ("restore", {
            let store = world.folder().join("restored.db");
            world.run(&format!("--db {} restore {} --json", store.display(), world.store().display())).json()
        }),
        ("repair", {
            crate::health::damage(&world);
            world.run("repair --json").json()
        }),
        ("import", world.run_with_input("import --json", "{\"id\": \"s9\"}\n").expect_code(0).json()),
        ("import", world.run_with_input("import --json", "{\"id\": 0}\n").expect_code(1).json()),
        ("demo", world.run("demo --json").json()),
    ];
    documents.extend(on_server.into_iter().flat_map(|(status, doctor)| [("status", status), ("doctor", doctor)]));
    for (command, document) in documents {
        // The fields of a session are listed once.
        let text =
            if command == "show" { [chapter("list"), chapter("show")].concat() } else { chapter(command).to_owned() };
        let mut fields = Vec::new();
        collect_fields(&document, &mut fields);
        assert!(!fields.is_empty());
        for field in fields {
            assert!(text.contains(&format!("`{field}`")), "{field} of {command} is not in its chapter");
        }
    }
}

/// The names of the command's own fields: what a message holds is not described.
fn collect_fields(value: &Json, fields: &mut Vec<String>) {
    match value {
        Json::Array(items) => items.iter().for_each(|item| collect_fields(item, fields)),
        Json::Object(members) => {
            for (name, member) in members {
                fields.push(name.clone());
                if name != "tool_calls" && name != "content" {
                    collect_fields(member, fields);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn the_page_and_the_help_have_the_same_exit_codes() {
    let help = World::new().run("--help").expect_code(0).out;
    for code in ["0", "1", "2", "3", "4", "70"] {
        assert!(PAGE.contains(&format!("\n| {code} | ")));
        assert!(help.contains(&format!("\n{code:>4}  ")), "{help}");
    }
}

#[test]
fn the_help_is_as_it_was_agreed_on() {
    let world = World::new();
    insta::assert_snapshot!("help", world.run("--help").expect_code(0).out);
    for command in commands(&world) {
        insta::assert_snapshot!(format!("help_{command}"), world.run(&format!("{command} --help")).expect_code(0).out);
    }
}

#[test]
fn manual_pages_and_completions_are_printed_without_a_store() {
    let world = World::new();
    for words in [
        "man",
        "man record",
        "completions bash",
        "completions zsh",
        "completions fish",
        "completions elvish",
        "completions powershell",
    ] {
        let printed = world.run(words).expect_code(0);
        assert!(printed.out.contains("record"), "{words}");
    }
    assert!(world.run("man list").out.contains("\n.TH hermes-state-list 1"));
    assert_eq!(world.run("--version").expect_code(0).out, format!("hermes-state {}\n", env!("CARGO_PKG_VERSION")));
    assert!(!world.folder().exists());
}

#[test]
fn the_example_of_the_help_works() {
    let world = World::new();
    let example = r#"echo '{"role":"user","content":"Where is the harbour?"}' | hermes-state record --session s1"#;
    assert!(world.run("record --help").out.contains(example));
    let output = world.shell(&example.replace("hermes-state", "$hermes"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.contents("s1"), ["Where is the harbour?"]);
}
