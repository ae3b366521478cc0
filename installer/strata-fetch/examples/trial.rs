//! `trial WHAT FOLDER [GIB] [COUNT]`: the download engine's promises at full size, measured. What: `throughput` (against curl and
//! aria2c, served by nginx where it is installed), `kills` (kill -9 at random moments), `cuts` (ninety cuts and three minutes without names), `resume` (time to the first
//! new byte). The engine itself runs as the example `fetch`, which has to be built beside this one.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement prints, and stops where it cannot go on")]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strata_faultd::{Faultd, Reply, of_disk};
use strata_fetch::{CancelFlag, Fetcher, Names, Observer, Request, Settings};
use strata_manifest::Sha256Digest;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let folder = PathBuf::from(words.get(2).expect("trial WHAT FOLDER [GIB] [COUNT]"));
    let number = |at: usize, default: f64| words.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let size = (number(3, 2.0) * f64::from(1 << 30)) as u64;
    match words[1].as_str() {
        "throughput" => throughput(&folder, size, number(4, 3.0) as u64),
        "kills" => kills(&folder, size, number(4, 200.0) as u64),
        "cuts" => cuts(&folder, size, Duration::from_secs(number(4, 180.0) as u64)),
        "resume" => resume(&folder, size),
        other => panic!("no trial is called {other}"),
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A file of bytes that do not repeat; its digest.
fn make(path: &Path, size: u64) -> Sha256Digest {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, fs_err::File::create(path).unwrap());
    let mut state = 7;
    let page: Vec<u8> = (0..4096).map(|_| random(&mut state) as u8).collect();
    let mut done = 0;
    while done < size {
        let count = (size - done).min(4096) as usize;
        file.write_all(&done.to_le_bytes()[..count.min(8)]).unwrap();
        file.write_all(&page[count.min(8)..count]).unwrap();
        done += count as u64;
    }
    drop(file);
    digest(path)
}

fn digest(path: &Path) -> Sha256Digest {
    Sha256Digest::of_reader(fs_err::File::open(path).unwrap()).unwrap().0
}

fn engine() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("fetch")
}

fn start(url: &str, to: &Path) -> Child {
    Command::new(engine()).arg(url).arg(to).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn median(numbers: &[f64]) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Seconds of the clock and of the processor, by bash's own `time`.
fn timed(words: &[String]) -> (f64, f64) {
    let mut command = Command::new("bash");
    command.args(["-c", "TIMEFORMAT='%R %U %S'; time \"$@\" >/dev/null 2>/dev/null", "timed"]).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let numbers: Vec<f64> = text.lines().last().unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
    (numbers[0], numbers[1] + numbers[2])
}

/// Who serves `source` for a measurement of speed: nginx with `sendfile`, as people's servers do it, where it is installed. Our own
/// server copies each byte twice on the processors that the measured programs need.
enum Serving {
    Nginx { child: Child, port: u16, folder: PathBuf },
    Own(Faultd),
}

impl Serving {
    fn start(source: &'static Path, size: u64) -> Serving {
        let folder = PathBuf::from("/dev/shm/trial-nginx");
        fs_err::create_dir_all(&folder).unwrap();
        // Freed at once for nginx to take: nobody else asks for ports here.
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let root = source.parent().unwrap().display();
        let name = source.file_name().unwrap().to_string_lossy();
        let shown = folder.display();
        let settings = format!(
            "daemon off; master_process off; pid {shown}/pid; error_log stderr;\nevents {{ worker_connections 64; }}\nhttp {{ access_log off; \
             sendfile on; tcp_nopush on; client_body_temp_path {shown}; proxy_temp_path {shown}; fastcgi_temp_path {shown}; \
             uwsgi_temp_path {shown}; scgi_temp_path {shown};\n server {{ listen 127.0.0.1:{port}; location = /file {{ root {root}; \
             try_files /{name} =404; }} }} }}\n"
        );
        let path = folder.join("nginx.conf");
        fs_err::write(&path, settings).unwrap();
        let Ok(child) = Command::new("nginx").arg("-c").arg(&path).stderr(Stdio::null()).spawn() else {
            println!("no nginx here: served by our own server, which takes a good part of the processors");
            return Serving::Own(Faultd::start(move |asked| of_disk(source, size, asked.range, None)).unwrap());
        };
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Serving::Nginx { child, port, folder }
    }

    fn url(&self) -> String {
        match self {
            Serving::Nginx { port, .. } => format!("http://127.0.0.1:{port}/file"),
            Serving::Own(server) => format!("{}/file", server.url()),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Serving::Nginx { child, folder, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
            let _ = fs_err::remove_dir_all(folder);
        }
    }
}

/// Ours, curl and aria2c in turn, from memory to `folder`; a second table where each ends with `sync`.
fn throughput(folder: &Path, size: u64, rounds: u64) {
    let source = Path::new("/dev/shm/trial-source");
    let sha256 = make(source, size);
    let server = Serving::start(source, size);
    let url = server.url();
    let to = folder.join("trial-target");
    let text = |path: &Path| path.display().to_string();
    let ours = vec![text(&engine()), url.clone(), text(&to)];
    let curl = ["curl", "--silent", "--fail", "--output", &text(&to), &url].map(str::to_owned).to_vec();
    let dir = format!("--dir={}", folder.display());
    let aria = ["aria2c", "-q", "-x8", "-s8", "--file-allocation=none", &dir, "--out=trial-target", &url];
    let aria = aria.map(str::to_owned).to_vec();
    let synced = |words: &[String]| {
        let script = format!("\"$@\" && sync {}", to.display());
        [vec!["bash".to_owned(), "-c".to_owned(), script, "x".to_owned()], words.to_vec()].concat()
    };
    let runs = [
        ("strata", ours.clone()),
        ("curl", curl.clone()),
        ("aria2c -x8", aria.clone()),
        ("strata + sync", synced(&ours)),
        ("curl + sync", synced(&curl)),
        ("aria2c -x8 + sync", synced(&aria)),
    ];
    // Memory that the machine has not used yet is slow the first time; nobody is charged for that.
    timed(&curl);
    let mut all: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for round in 1..=rounds {
        for (name, words) in &runs {
            let (seconds, processor) = timed(words);
            if round == 1 {
                assert_eq!(digest(&to), sha256, "{name}");
            }
            fs_err::remove_file(&to).unwrap();
            let rate = size as f64 / seconds / 1e6;
            println!("round {round} {name:18} {seconds:6.2} s {rate:7.0} MB/s, processor {processor:5.2} s");
            let held = all.entry(name).or_default();
            held.0.push(seconds);
            held.1.push(processor);
        }
    }
    for end in ["", " + sync"] {
        let of = |name: &str| {
            let (seconds, processor) = &all[format!("{name}{end}").as_str()];
            (median(seconds), median(processor))
        };
        let (ours, fastest) = (of("strata"), of("curl").0.min(of("aria2c -x8").0));
        println!(
            "medians{end}: {:.2} x the faster of curl and aria2c; processor {:.2} s against {:.2} s and {:.2} s",
            fastest / ours.0,
            ours.1,
            of("curl").1,
            of("aria2c -x8").1
        );
    }
    fs_err::remove_file(source).unwrap();
}

/// Kills the engine at random moments until `count` kills, over as many files as that takes.
fn kills(folder: &Path, size: u64, count: u64) {
    let source = folder.join("trial-source");
    let sha256 = make(&source, size);
    let served = source.clone();
    let server = Faultd::start(move |asked| of_disk(&served, size, asked.range, Some(16 << 20))).unwrap();
    let url = format!("{}/file", server.url());
    let to = folder.join("trial-target");
    let (mut done, mut files, mut state) = (0, 0, 0x5eed);
    let began = Instant::now();
    while done < count || to.exists() {
        let mut child = start(&url, &to);
        if done < count {
            std::thread::sleep(Duration::from_millis(50 + random(&mut state) % 600));
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
                done += 1;
            }
        }
        if done == count || to.exists() {
            if done < count && !to.exists() {
                continue;
            }
            child.wait().unwrap();
            if done == count && !to.exists() {
                assert!(start(&url, &to).wait().unwrap().success());
            }
            assert_eq!(digest(&to), sha256, "after {done} kills");
            fs_err::remove_file(&to).unwrap();
            files += 1;
        } else {
            child.wait().unwrap();
        }
    }
    let (extra, bound) = (server.sent().saturating_sub(files * size), count * 4 * (8 << 20));
    println!(
        "{done} kills over {files} files of {size} bytes in {:.0} s: every digest right, {extra} bytes sent more than the \
         files have, bound {bound}",
        began.elapsed().as_secs_f64()
    );
    assert!(extra <= bound);
    traced(&url, &to, &server);
    fs_err::remove_file(&source).unwrap();
}

/// What a resume reads before its first network byte, seen from outside.
fn traced(url: &str, to: &Path, server: &Faultd) {
    let mut child = start(url, to);
    let before = server.sent();
    while server.sent() < before + (600 << 20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let log = to.with_extension("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-e", "trace=read,pread64,preadv,mmap,recvfrom,connect", "-o"]).arg(&log);
    // Who kills strace leaves what it traces alive, so the engine is ended from inside.
    command.args(["timeout", "--signal=KILL", "5"]).arg(engine()).arg(url).arg(to);
    let Ok(mut traced) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return println!("skipped: no strace");
    };
    traced.wait().unwrap();
    let text = fs_err::read_to_string(&log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let payload = |line: &&&str| line.contains(".part>") && !line.contains("-1 E");
    let is_byte = |line: &&str| line.contains("recvfrom(") && line.contains("HTTP/1.1 206");
    let first = lines.iter().position(is_byte).expect("something came");
    let early = lines[..first].iter().filter(payload).count();
    let late = lines[first..].iter().filter(payload).count();
    println!("resume after a kill: {early} reads of the payload before the first network byte, {late} after it");
    assert_eq!(early, 0);
    for path in [&log, &to.with_file_name(".trial-target.part"), &to.with_file_name(".trial-target.part.chunks")] {
        let _ = fs_err::remove_file(path);
    }
}

#[derive(Default)]
struct Longest(Mutex<(u64, String)>);

impl Observer for Longest {
    fn note(&self, text: &str) {
        let mut held = self.0.lock().unwrap();
        held.0 += 1;
        text.clone_into(&mut held.1);
    }
}

/// Ninety cuts, and names that do not resolve for a while in the middle, in one run.
fn cuts(folder: &Path, size: u64, dead: Duration) {
    let source = folder.join("trial-source");
    let sha256 = make(&source, size);
    let (made, gone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (served, counted, away) = (source.clone(), Arc::clone(&made), Arc::clone(&gone));
    let until: Arc<Mutex<Option<Instant>>> = Arc::default();
    let ends = Arc::clone(&until);
    let server = Faultd::start(move |asked| {
        let mut reply = of_disk(&served, size, asked.range, None);
        let length = reply.file.as_ref().unwrap().length;
        if away.load(Ordering::Relaxed) {
            // While names are gone, connections that are there already are no way around it.
            return Reply { status: 503, cut: Some(0), announce: Some(1), ..Reply::default() };
        }
        if counted.load(Ordering::Relaxed) < 90 {
            let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
            let part = reply.file.as_mut().unwrap();
            part.length = (length / 3).min(6 << 20);
            reply.announce = Some(length);
            if number == 45 {
                *ends.lock().unwrap() = Some(Instant::now() + dead);
                away.store(true, Ordering::Relaxed);
            }
        }
        reply
    })
    .unwrap();
    let failed = Arc::new(AtomicU64::new(0));
    let (failures, away) = (Arc::clone(&failed), Arc::clone(&gone));
    let names = Names::new(move |_| {
        let over = until.lock().unwrap().is_none_or(|end| Instant::now() >= end);
        if over {
            away.store(false, Ordering::Relaxed);
            return Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        }
        failures.fetch_add(1, Ordering::Relaxed);
        Err(std::io::Error::other("Temporary failure in name resolution"))
    });
    let settings = Settings { names: Some(names), ..Settings::from_environment() };
    let to = folder.join("trial-target");
    let request = Request {
        name: "trial".to_owned(),
        sources: vec![format!("http://model.example:{}/file", server.address().port())],
        to: to.clone(),
        ..Request::default()
    };
    let began = Instant::now();
    let heard = Longest::default();
    let got = Fetcher::new(settings).unwrap().fetch(&[request], &heard, &CancelFlag::default()).unwrap();
    assert_eq!((got[0].sha256, digest(&to)), (sha256, sha256));
    println!(
        "one run of {:.0} s over {} cuts and {:.0} s without names ({} lookups failed, {} notes): digest right, {} bytes \
         sent for {size}",
        began.elapsed().as_secs_f64(),
        made.load(Ordering::Relaxed),
        dead.as_secs_f64(),
        failed.load(Ordering::Relaxed),
        heard.0.lock().unwrap().0,
        server.sent()
    );
    fs_err::remove_file(&to).unwrap();
    fs_err::remove_file(&source).unwrap();
}

/// A run is killed when 3.9 of 4 parts are there; how long the next one takes to its first new byte.
fn resume(folder: &Path, size: u64) {
    let source = folder.join("trial-source");
    let sha256 = make(&source, size);
    let served = source.clone();
    let (most, second) = (size / 40 * 39, Arc::new(AtomicBool::new(false)));
    let (phase, first_byte) = (Arc::clone(&second), Arc::new(Mutex::new(None)));
    let seen = Arc::clone(&first_byte);
    let server = Faultd::start(move |asked| {
        let mut reply = of_disk(&served, size, asked.range, None);
        if phase.load(Ordering::Relaxed) {
            seen.lock().unwrap().get_or_insert_with(Instant::now);
            return reply;
        }
        let part = reply.file.as_mut().unwrap();
        let length = part.length;
        part.length = length.min(most.saturating_sub(part.first));
        if part.length < length {
            reply.announce = Some(length);
            reply.stall = Some(Duration::from_secs(2));
        }
        reply
    })
    .unwrap();
    let url = format!("{}/file", server.url());
    let to = folder.join("trial-target");
    let mut child = start(&url, &to);
    while server.sent() < most {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    child.kill().unwrap();
    child.wait().unwrap();
    let cold = Command::new("sh").args(["-c", "sync; echo 3 > /proc/sys/vm/drop_caches"]).status();
    let cold = cold.is_ok_and(|status| status.success());
    let sent = server.sent();
    second.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let output = start(&url, &to).wait_with_output().unwrap();
    let all = began.elapsed();
    let first = first_byte.lock().unwrap().unwrap().duration_since(began);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(&sha256.to_string()));
    println!(
        "resume at {most} of {size} bytes{}: first new byte after {:.0} ms, file whole after {:.2} s, {} bytes sent",
        if cold { ", caches dropped" } else { "" },
        first.as_secs_f64() * 1e3,
        all.as_secs_f64(),
        server.sent() - sent
    );
    assert_eq!(digest(&to), sha256);
    fs_err::remove_file(&to).unwrap();
    fs_err::remove_file(&source).unwrap();
}
