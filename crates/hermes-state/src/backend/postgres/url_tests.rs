//! What URLs are read as, which are refused, and that no password shows.

use super::*;

fn address(url: &str) -> Address {
    Address::parse(url).unwrap()
}

fn refused(url: &str) -> String {
    match Address::parse(url) {
        Err(ServerTrouble::BadUrl(reason)) => reason,
        other => panic!("{url} gave {other:?}"),
    }
}

#[test]
fn typos_are_refused_and_not_guessed_at() {
    for url in ["postgresql:/h/d", "postgresql:h", "postgresql//h/d", "mysql://h/d", "postgresql:///d", "postgresql://"]
    {
        refused(url);
    }
    assert!(refused("postgresql://h/d?sslmod=require").contains("sslmod"));
    assert!(refused("postgresql://h/d?sslmode=allow").contains("sslmode"));
    assert!(refused("postgresql://h/d?connect_timeout=0").contains("connect_timeout"));
    assert!(refused("postgresql://h/d?keepalives=yes").contains("keepalives"));
    assert!(refused("postgresql://h:1,i:2/d?port=1,2,3").contains("ports"));
    assert!(refused("postgresql://h/d?sslnegotiation=direct").contains("sslmode"));
    for schema in ["", "1a", "a-b", "a.b", "pg_x", "PG_x", "a%20b", "%22", &"a".repeat(64)] {
        assert!(refused(&format!("postgresql://h/d?schema={schema}")).contains("schema"), "{schema}");
    }
}

#[test]
fn defaults_are_filled_in() {
    let plain = address("postgresql://u@h");
    assert_eq!((plain.user(), plain.database(), plain.schema()), ("u", "u", "hermes_state"));
    assert_eq!((plain.ssl_mode(), plain.connect_timeout()), (SslMode::Prefer, Duration::from_secs(4)));
    let config = plain.config();
    assert_eq!(config.get_application_name(), Some("hermes-state"));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(10)));
    assert_eq!(config.get_keepalives_idle(), Duration::from_secs(5));
    let given = address(
        "postgresql://u@h/d?schema=Mine&application_name=x%26y&connect_timeout=9&tcp_user_timeout=2500&keepalives_count=7\
         &sslmode=verify-full&sslrootcert=%2Fa%20b.pem&options=-c%20statement_timeout%3D1s",
    );
    assert_eq!((given.schema(), given.database()), ("Mine", "d"));
    assert_eq!(given.roots(), Some(&Roots::File("/a b.pem".into())));
    let config = given.config();
    assert_eq!(config.get_application_name(), Some("x&y"));
    assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_millis(2500)));
    assert_eq!(config.get_keepalives_retries(), Some(7));
    assert!(given.sets("statement_timeout") && !given.sets("idle_in_transaction_session_timeout"));
    assert!(address("postgresql://h/?options=--statement-timeout%3D1").sets("statement_timeout"));
    assert!(address("postgresql://h/?options=-cstatement_timeout%3D1").sets("statement_timeout"));
    assert!(!address("postgresql://h/?options=-c%20idle_in_transaction_session_timeout%3D1").sets("statement_timeout"));
}

#[test]
fn hosts_come_from_every_form() {
    let shown = |url: &str| address(url).endpoints().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown("postgresql://a,b:6,[::1]:7/d"), ["a:5432", "b:6", "[::1]:7"]);
    assert_eq!(shown("postgresql://%2Frun%2Fpg:7/d"), ["/run/pg/.s.PGSQL.7"]);
    assert_eq!(shown("postgresql:///d?host=/run/pg&port=8"), ["/run/pg/.s.PGSQL.8"]);
    assert_eq!(shown("postgresql://a/d?host=x,y&port=9"), ["x:9", "y:9"]);
    assert_eq!(shown("postgresql:///d?hostaddr=127.0.0.1"), ["127.0.0.1:5432"]);
    let both = address("postgresql://a/d?hostaddr=10.0.0.1&load_balance_hosts=random");
    assert!(both.is_balanced());
    assert_eq!(both.endpoints()[0].host, Host::Tcp { name: "a".into(), address: Some("10.0.0.1".parse().unwrap()) });
}

#[test]
fn no_password_shows_in_whatever_form_it_came() {
    for url in [
        "postgresql://u:sesame@h/d",
        "postgresql://u:ses%61me@h/d",
        "postgresql://u@h/d?password=sesame",
        "postgresql://u@h/d?pass%77ord=sesame&schema=s",
        "postgresql://u:sesame@h:1,i:2/d?password=sesame",
    ] {
        let address = address(url);
        assert_eq!(address.config().get_password(), Some(&b"sesame"[..]), "{url}");
        for text in [address.to_string(), format!("{address:?}"), format!("{:?}", address.config())] {
            assert!(!text.contains("sesame") && !text.contains("%61"), "{text}");
        }
        assert_eq!(Address::parse(&address.to_string()).unwrap().with_password("sesame").key(), address.key());
    }
    assert_eq!(address("postgresql://u:p%25%40w@h/d%25x?schema=s").to_string(), "postgresql://u@h/d%25x?schema=s");
    assert_eq!(address("postgresql://u:p@h?schema=s").to_string(), "postgresql://u@h/?schema=s");
    assert_eq!(address("postgresql://u@h/a b").to_string(), "postgresql://u@h/a%20b");
}

#[test]
fn a_refusal_quotes_no_password_that_was_written_raw() {
    for url in [
        "postgresql://u:se/same@h/d",
        "postgresql://u:se?same@h/d",
        "postgresql://u:12?se=same@h/d",
        "postgresql://u:se%same@h/d",
        "postgresql://u:se#same/x",
        "postgresql:/u:sesame@h",
        "postgresql://u:sesame",
    ] {
        let reason = refused(url);
        assert!(!reason.contains("same"), "{url}: {reason}");
    }
    assert_eq!(address("postgresql://u:a@b@h/d").config().get_password(), Some(&b"a@b"[..]));
}

#[test]
fn another_password_serves_only_where_there_is_none() {
    let with = address("postgresql://u:one@h").with_password("two");
    assert_eq!(with.config().get_password(), Some(&b"one"[..]));
    let without = address("postgresql://u:@h").with_password("two");
    assert_eq!(without.config().get_password(), Some(&b"two"[..]));
    assert_ne!(address("postgresql://u@h").key(), address("postgresql://u@h").with_password("x").key());
}
