//! Operations and queries hold their SQL once, for every engine: nothing in it, and nothing around it, is of one engine.

use std::path::{Path, PathBuf};

/// Where statements for all engines are.
const SHARED: [&str; 4] = ["src/op", "src/query", "src/search", "src/migrate"];

/// What only one engine understands, as it would stand in a statement.
const OF_ONE_ENGINE: [&str; 35] = [
    // SQLite
    " MATCH ",
    "messages_fts",
    "fts5(",
    "PRAGMA",
    "rowid",
    "sqlite_",
    "INSERT OR ",
    "AUTOINCREMENT",
    "GLOB",
    "IFNULL",
    "GROUP_CONCAT",
    "json_extract",
    "json_each",
    "strftime",
    "julianday",
    "last_insert_rowid",
    "changes()",
    "SAVEPOINT",
    "zeroblob",
    "snippet(",
    "bm25(",
    // PostgreSQL
    "::",
    "$1",
    "tsvector",
    "tsquery",
    "message_words",
    "@@",
    "ILIKE",
    "lastval",
    "currval",
    "unnest",
    "LATERAL",
    "FOR UPDATE",
    "pg_",
    "ANY (",
];

#[expect(clippy::disallowed_methods, reason = "source files, never a store")]
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("the folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            found.push((path, text));
        }
    }
}

/// The program without its tests and comments.
fn program(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The texts between quotation marks.
fn literals(program: &str) -> Vec<String> {
    let mut literals = Vec::new();
    let mut characters = program.chars();
    while let Some(character) = characters.next() {
        match character {
            // A quotation mark as a character of its own begins nothing.
            '\'' => {
                let mut ahead = characters.clone();
                let first = ahead.next();
                let second = if first == Some('\\') { ahead.nth(1) } else { ahead.next() };
                if second == Some('\'') {
                    characters = ahead;
                }
            }
            '"' => {
                let mut literal = String::new();
                while let Some(inside) = characters.next() {
                    match inside {
                        '"' => break,
                        '\\' => literal.extend(characters.next()),
                        other => literal.push(other),
                    }
                }
                literals.push(literal);
            }
            _ => {}
        }
    }
    literals
}

fn shared_sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in SHARED {
        sources(&root.join(folder), &mut found);
    }
    found.retain(|(path, _)| {
        !path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
    });
    assert!(found.len() > 15, "the sources are found: {}", found.len());
    found
}

/// SQLite's tokenizer, and those that are made of its own.
fn is_tokenizer(path: &Path) -> bool {
    ["tokens.rs", "cjk_tokenizer.rs", "trigram_tokenizer.rs", "wrapped_tokenizer.rs"]
        .iter()
        .any(|name| path.ends_with(format!("search/{name}")))
}

#[test]
fn no_statement_of_an_operation_is_for_one_engine_only() {
    let mut statements = 0;
    for (path, text) in shared_sources() {
        // What names the tokenizer of SQLite speaks to no engine of stores.
        if is_tokenizer(&path) {
            continue;
        }
        for literal in literals(&program(&text)) {
            statements +=
                usize::from(literal.contains("SELECT ") || literal.contains("UPDATE ") || literal.contains("INSERT "));
            for word in OF_ONE_ENGINE {
                assert!(!literal.contains(word), "{}: {word:?} in {literal:?}", path.display());
            }
        }
    }
    assert!(statements > 20, "statements are seen: {statements}");
}

#[test]
fn no_operation_asks_which_engine_it_runs_on() {
    for (path, text) in shared_sources() {
        let program = program(&text);
        for word in ["backend::sqlite", "backend::postgres", "rusqlite", "tokio_postgres", "feature = \"postgres\""] {
            // SQLite's tokenizer cuts words for both engines, and without the other one some of what it is for is unused.
            let tokenizer = is_tokenizer(&path) && word == "rusqlite";
            let unused = path.ends_with("search/mod.rs") && word.starts_with("feature");
            assert!(tokenizer || unused || !program.contains(word), "{}: {word}", path.display());
        }
    }
}
