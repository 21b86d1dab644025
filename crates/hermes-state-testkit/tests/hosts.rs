//! Hosts: whom they reach, and what is left of them.
#![cfg(target_os = "linux")]

use std::process::Command;

use hermes_state_testkit::{Hosts, Missing, Server, ServerConfig};

fn namespaces() -> String {
    String::from_utf8(Command::new("ip").args(["netns", "list"]).output().unwrap().stdout).unwrap()
}

#[test]
fn hosts_reach_a_server_on_all_addresses_until_their_cable_is_pulled_and_leave_nothing_behind() {
    let config = ServerConfig::new().all_addresses();
    let Ok(server) = Server::start_with(&config).inspect_err(Missing::skip) else { return };
    let Some(hosts) = Hosts::make(2) else { return };
    assert_eq!(hosts.count(), 2);
    let says = |host: usize, sql: &str| {
        let url = server.url_at(hosts.server_address(host)) + "?connect_timeout=2";
        let output = hosts.command(host, server.psql_program()).args([&url, "-XAtc", sql]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    };
    for host in 0..2 {
        assert_eq!(says(host, "SELECT host(inet_client_addr())"), Ok(hosts.address(host).to_string()));
    }
    hosts.plug(0, false);
    assert!(says(0, "SELECT 1").is_err());
    assert_eq!(says(1, "SELECT 1"), Ok("1".into()));
    hosts.plug(0, true);
    assert_eq!(says(0, "SELECT 1"), Ok("1".into()));

    let names = String::from_utf8(hosts.command(0, "ip").args(["netns", "identify"]).output().unwrap().stdout).unwrap();
    assert!(names.starts_with("hermes-test-") && namespaces().contains(names.trim()));
    drop(hosts);
    assert!(!namespaces().lines().any(|line| line.split(' ').next() == Some(names.trim())));
}

#[test]
fn what_a_killed_run_has_left_is_removed_and_what_others_use_is_not() {
    let Some(first) = Hosts::make(1) else { return };
    // The network of no living process: no reservation can have a number as high.
    let left = "hermes-test-60000-0";
    let cable = "hst60000h0";
    for arguments in [format!("netns add {left}"), format!("link add {cable} type veth peer name e netns {left}")] {
        assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());
    }
    let second = Hosts::make(1).unwrap();
    assert!(!namespaces().contains(left));
    assert!(!Command::new("ip").args(["link", "show", cable]).output().unwrap().status.success());
    for (hosts, others) in [(&first, &second), (&second, &first)] {
        assert!(hosts.command(0, "true").status().unwrap().success());
        assert_ne!(hosts.address(0), others.address(0));
    }
}
