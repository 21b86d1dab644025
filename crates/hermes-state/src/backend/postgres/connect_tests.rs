//! Every way in which connecting fails, and what a session is set to.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::super::server::{Server, block_on, writer};
use super::*;

fn fails(url: &str) -> ConnectError {
    let address = Address::parse(url).unwrap();
    let begun = Instant::now();
    let error = block_on(connect(&address, Role::Writer)).err().unwrap_or_else(|| panic!("{url} connects"));
    // Twice the limit: the test's machine may be busy, and without a limit it would take minutes or never end.
    assert!(begun.elapsed() < address.connect_timeout() * 2, "{url} took {:?}", begun.elapsed());
    assert!(!format!("{error:?} {}", error.clone().trouble()).contains("sesame"));
    error
}

/// Something that listens and answers every connection in its way, for as long as the test runs.
fn listener(answer: impl Fn(&mut std::net::TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            answer(&mut stream);
            held.push(stream);
        }
    });
    port
}

fn read_some(stream: &mut std::net::TcpStream) {
    let _ = stream.read(&mut [0; 1024]);
}

#[test]
fn an_unknown_host_a_closed_port_and_a_missing_socket_may_come_good() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ConnectError::Transient { trouble, .. } = fails("postgresql://u:sesame@no-such-host.invalid/d") else {
        panic!()
    };
    assert_eq!(trouble, ServerTrouble::UnknownHost { host: "no-such-host.invalid".into() });
    let ConnectError::Transient { trouble, .. } = fails(&format!("postgresql://u:sesame@127.0.0.1:{gone}/d")) else {
        panic!()
    };
    assert_eq!(trouble, ServerTrouble::Refused { at: format!("127.0.0.1:{gone}") });
    let ConnectError::Transient { trouble, .. } = fails("postgresql:///d?host=/nowhere") else { panic!() };
    assert_eq!(trouble, ServerTrouble::Refused { at: "/nowhere/.s.PGSQL.5432".into() });
}

#[test]
fn a_server_that_never_answers_takes_no_longer_than_asked_in_every_phase() {
    let silent = listener(|_| ());
    let plain_then_silent = listener(|stream| {
        read_some(stream);
        stream.write_all(b"N").unwrap();
    });
    let tls_then_silent = listener(|stream| {
        read_some(stream);
        stream.write_all(b"S").unwrap();
    });
    for port in [silent, plain_then_silent, tls_then_silent] {
        let error = fails(&format!("postgresql://u:sesame@127.0.0.1:{port}/d?connect_timeout=1"));
        let ConnectError::Transient { trouble, .. } = error else { panic!("{error:?}") };
        assert_eq!(trouble, ServerTrouble::NoAnswer { at: format!("127.0.0.1:{port}") });
    }
}

#[test]
fn what_is_no_server_is_told() {
    let odd = listener(|stream| {
        read_some(stream);
        stream.write_all(b"NR\0\0\0\0 of length nothing").unwrap();
    });
    let error = fails(&format!("postgresql://u:sesame@127.0.0.1:{odd}/d"));
    assert!(matches!(error, ConnectError::Permanent(ServerTrouble::NotAServer { .. })), "{error:?}");
    let error = fails(&format!("postgresql://u:sesame@127.0.0.1:{odd}/d?sslmode=require"));
    assert!(matches!(error, ConnectError::Permanent(ServerTrouble::NoTls)), "{error:?}");
    let closes = listener(|stream| {
        read_some(stream);
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let error = fails(&format!("postgresql://u:sesame@127.0.0.1:{closes}/d"));
    assert!(matches!(error, ConnectError::Transient { trouble: ServerTrouble::Unavailable { .. }, .. }), "{error:?}");
}

#[test]
fn a_wrong_password_database_or_option_is_permanent() {
    let Some(server) = Server::shared() else { return };
    server
        .run("CREATE ROLE guest LOGIN PASSWORD 'open sesame'; CREATE ROLE crowd LOGIN PASSWORD 'x' CONNECTION LIMIT 0");
    let at = format!("127.0.0.1:{}", server.port);
    let wrong = fails(&format!("postgresql://guest:sesame@{at}/postgres"));
    let ConnectError::Permanent(ServerTrouble::Login { user, .. }) = &wrong else { panic!("{wrong:?}") };
    assert_eq!(user, "guest");
    for url in [format!("postgresql://guest@{at}/postgres"), format!("postgresql://nobody:sesame@{at}/postgres")] {
        let error = fails(&url);
        assert!(matches!(error, ConnectError::Permanent(ServerTrouble::Login { .. })), "{error:?}");
    }
    let error = fails(&format!("postgresql://guest:open%20sesame@{at}/missing"));
    assert_eq!(error, ConnectError::Permanent(ServerTrouble::NoDatabase { database: "missing".into() }));
    let error = fails(&format!("postgresql://postgres@{at}/postgres?options=-c%20no_such_setting%3D1"));
    assert!(matches!(error, ConnectError::Permanent(ServerTrouble::BadUrl(_))), "{error:?}");
    let error = fails(&format!("postgresql://postgres@{at}/postgres?sslmode=require"));
    assert_eq!(error, ConnectError::Permanent(ServerTrouble::NoTls));
    let error = fails(&format!("postgresql://crowd:x@{at}/postgres"));
    assert!(matches!(error, ConnectError::Transient { trouble: ServerTrouble::Unavailable { .. }, .. }), "{error:?}");
    let address = server.address_of(&format!("guest@{at}/postgres")).with_password("open sesame");
    block_on(writer(&address));
}

#[test]
fn a_database_that_cannot_hold_every_text_is_refused() {
    let Some(server) = Server::shared() else { return };
    server.run("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    let error = fails(&format!("postgresql://postgres@127.0.0.1:{}/latin", server.port));
    let trouble = ServerTrouble::Encoding { database: "latin".into(), found: "LATIN1".into() };
    assert_eq!(error, ConnectError::Permanent(trouble));
}

#[test]
fn places_are_tried_in_turn_and_one_that_only_reads_is_passed_over_by_writers() {
    let Some(server) = Server::shared() else { return };
    server.run("CREATE DATABASE standby; ALTER DATABASE standby SET default_transaction_read_only = on");
    let silent = listener(|_| ());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let places = format!("127.0.0.1:{gone},127.0.0.1:{silent},127.0.0.1:{}", server.port);
    let _connected = block_on(writer(&server.address_of(&format!("postgres@{places}/postgres"))));
    for more in ["", "?target_session_attrs=read-write"] {
        let error = fails(&format!("postgresql://postgres@127.0.0.1:{}/standby{more}", server.port));
        assert!(
            matches!(error, ConnectError::Transient { trouble: ServerTrouble::WrongServer { .. }, .. }),
            "{error:?}"
        );
    }
    let standby = server.address_of(&format!("postgres@127.0.0.1:{}/standby", server.port));
    assert!(block_on(connect(&standby, Role::Reader)).is_ok());
}

#[test]
fn a_session_is_set_up_and_options_of_the_url_stay() {
    let Some(server) = Server::shared() else { return };
    let show = |address: &Address, role| {
        block_on(async {
            let connected = match connect(address, role).await {
                Ok(connected) => connected,
                Err(error) => panic!("{error:?}"),
            };
            let sql = "SELECT current_setting(name) FROM unnest(ARRAY['search_path', 'statement_timeout', \
                'idle_in_transaction_session_timeout', 'default_transaction_read_only', 'synchronous_commit', \
                'application_name']) AS name UNION ALL SELECT pg_backend_pid()::text";
            let rows = connected.client.query(sql, &[]).await.unwrap();
            let shown: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            assert_eq!(shown[6], connected.pid.to_string());
            shown[..6].join(" | ")
        })
    };
    let plain = server.address_of(&format!("postgres@127.0.0.1:{}/postgres?schema=Mine", server.port));
    assert_eq!(show(&plain, Role::Writer), "\"Mine\", pg_temp | 5min | 15s | off | on | hermes-state");
    assert_eq!(show(&plain, Role::Reader), "\"Mine\", pg_temp | 5min | 15s | on | on | hermes-state");
    let socket = server.data.to_str().unwrap();
    let options = "-c%20statement_timeout%3D7s%20-c%20synchronous_commit%3Doff";
    let given = server.address_of(&format!(
        "postgres@/postgres?host={socket}&port={}&options={options}&application_name=mine&sslmode=require",
        server.port
    ));
    assert_eq!(show(&given, Role::Writer), "\"hermes_state\", pg_temp | 7s | 15s | off | on | mine");
}
