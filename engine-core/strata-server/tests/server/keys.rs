//! Which paths need the key, which hosts and pages may ask.

use crate::support::{Playing, Script, case, post, question};

#[test]
fn e24_key_and_public_paths() {
    let Some(table) = case("e24-key-and-public-paths/table.tsv") else { return };
    let server = Playing::with(Script::default(), |options| {
        // The case calls the key `right`; keys have at least eight characters.
        options.keys.add("right-right").unwrap();
        options.origins.insert("https://page.example".to_owned());
    });
    let mut checked = 0;
    for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let [method, path, key, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let key = key.replace("right", "right-right").replace("Basic cmlnaHQ=", "Basic cmlnaHQtcmlnaHQ=");
        let authorization = if key == "(none)" { String::new() } else { format!("Authorization: {key}\r\n") };
        let request = if method == "POST" {
            // Announced, never sent: a refusal that waits for the body would not come.
            format!("POST {path} HTTP/1.1\r\nHost: x\r\n{authorization}Content-Length: 1000000\r\n\r\n{{")
        } else {
            format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\n{authorization}Origin: https://page.example\r\nConnection: close\r\n\r\n"
            )
        };
        let answer = server.send(&request);
        let allowed: Vec<u16> = expected.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        match expected {
            "not 200" => assert_ne!(answer.status, 200, "{line}"),
            "200 or 401, never 500" => assert!([200, 401].contains(&answer.status), "{line}: {}", answer.status),
            _ => assert!(allowed.contains(&answer.status), "{line}: {}", answer.status),
        }
        if method == "OPTIONS" {
            assert_eq!(answer.headers["access-control-allow-origin"], "https://page.example");
            assert!(answer.headers["access-control-allow-methods"].contains("POST"));
        }
        if answer.status == 401 {
            answer.is_error(401, "S0806");
            assert!(answer.headers.contains_key("www-authenticate"));
        }
        checked += 1;
    }
    assert!(checked >= 14);
    // The same for known and unknown paths, and the key shows nowhere.
    let with_key = |path: &str| {
        server.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nx-api-key: right-right\r\nConnection: close\r\n\r\n"))
    };
    assert_eq!(with_key("/nothing").status, 404);
    assert_eq!(with_key("/v1/models").status, 200);
    for path in ["/v1/status", "/metrics", "/v1/models", "/props"] {
        assert!(!with_key(path).body.contains("right-right"), "{path}");
    }
    assert!(!server.has_line("right"));
}

#[test]
fn without_a_key_only_this_machines_names_count() {
    let server = Playing::with(Script::default(), |options| {
        options.hosts.insert("box.lan".to_owned());
    });
    let get =
        |host: &str| server.send(&format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "192.168.1.5", "box.lan:80", "localhost."]
    {
        assert_eq!(get(host).status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "box.lan.evil.example:80"] {
        get(host).is_error(403, "S0807");
    }
    let absent = server.send("GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n");
    absent.is_error(400, "S0805");
    assert_eq!(server.send("GET /v1/models HTTP/1.0\r\n\r\n").status, 200);
}

#[test]
fn web_pages_of_others_are_refused() {
    let server = Playing::with(Script::default(), |options| {
        options.origins.insert("https://friend.example".to_owned());
    });
    let ask = |origin: &str| {
        let request = post("/v1/chat/completions", &question("x").to_string());
        server.send(&request.replace("Host: localhost\r\n", &format!("Host: localhost:81\r\nOrigin: {origin}\r\n")))
    };
    ask("https://evil.example").is_error(403, "S0807");
    ask("null").is_error(403, "S0807");
    assert_eq!(ask("http://localhost:81").status, 200);
    let friend = ask("https://friend.example");
    assert_eq!(friend.status, 200);
    assert_eq!(friend.headers["access-control-allow-origin"], "https://friend.example");
    let preflight = |origin: &str| {
        server.send(&format!(
            "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-custom\r\nConnection: close\r\n\r\n"
        ))
    };
    assert_eq!(preflight("https://friend.example").headers["access-control-allow-headers"], "x-custom");
    let evil = preflight("https://evil.example");
    assert_eq!(evil.status, 204);
    assert!(!evil.headers.contains_key("access-control-allow-origin"));
}
