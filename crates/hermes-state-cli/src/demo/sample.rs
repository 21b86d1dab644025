//! The conversations that the demonstration records, bundled with the program.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

/// A sample conversation; its messages have the fields that `record` takes.
#[derive(Debug, Deserialize)]
pub(super) struct Conversation {
    pub(super) title: String,
    pub(super) source: String,
    pub(super) messages: Vec<Map<String, Json>>,
}

const FILES: [&str; 7] = [
    include_str!("../../samples/english.jsonl"),
    include_str!("../../samples/german.jsonl"),
    include_str!("../../samples/spanish.jsonl"),
    include_str!("../../samples/french.jsonl"),
    include_str!("../../samples/chinese.jsonl"),
    include_str!("../../samples/japanese.jsonl"),
    include_str!("../../samples/korean.jsonl"),
];

/// All of them, in an order that every process agrees on.
pub(super) fn conversations() -> Vec<Conversation> {
    FILES
        .iter()
        .flat_map(|file| file.lines())
        .map(|line| serde_json::from_str(line).expect("the bundled sample is valid, as a test makes sure"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_sample_is_valid_and_rich() {
        let conversations = conversations();
        let messages: Vec<_> = conversations.iter().flat_map(|conversation| &conversation.messages).collect();
        assert!((60..=100).contains(&conversations.len()), "{} conversations", conversations.len());
        assert!((300..=600).contains(&messages.len()), "{} messages", messages.len());
        for fields in &messages {
            crate::line::message((*fields).clone()).unwrap();
        }
        let titles: HashSet<_> = conversations.iter().map(|conversation| &conversation.title).collect();
        assert_eq!(titles.len(), conversations.len(), "titles are unique");
        assert!(messages.iter().filter(|fields| fields["role"] == "tool").count() > 40);
    }
}
