//! The interactive chat in a real terminal, driven through a pseudo-terminal by Python.

use crate::support::{SMOLLM2, cpu_plugin, model, state_dir};
use std::process::Command;

/// Asks, interrupts the answer, asks again, leaves. The questions do not hold what is waited for, since
/// the terminal echoes them. Prints what the terminal showed.
const SCRIPT: &str = r#"
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
shown, seen = b"", 0
def until(text, seconds=90):
    global shown, seen
    end = time.time() + seconds
    while text not in shown[seen:]:
        if time.time() > end:
            sys.stdout.buffer.write(shown); sys.exit("timed out waiting for %r" % text)
        if select.select([fd], [], [], 1)[0]:
            try: more = os.read(fd, 65536)
            except OSError: more = b""
            if not more:
                sys.stdout.buffer.write(shown); sys.exit("ended while waiting for %r" % text)
            shown += more
    seen = shown.index(text, seen) + len(text)
until(b"> ")
os.write(fd, b"Write a very long story.\r")
until(b" the ")
os.write(fd, b"\x03")
until(b"tok/s")
until(b"> ")
os.write(fd, b"/help\r")
until(b"find earlier questions")
until(b"> ")
os.write(fd, b"Now write another long story.\r")
until(b" the ")
os.write(fd, b"\x03")
until(b"reused")
until(b"> ")
os.write(fd, b"/claer\r")
until(b"there is no command `/claer`")
until(b"> ")
os.write(fd, b"/set temperature 200\r")
until(b"temperature is 200")
until(b"> ")
os.write(fd, b"/set max-tokens 3\r")
until(b"> ")
os.write(fd, b"/show\r")
until(b"max-tokens 3,")
until(b"> ")
os.write(fd, b"Say a word about \\\r")
os.write(fd, b"@/etc/hostname please.\r")
until(b"attached /etc/hostname")
until(b"cut off at --max-tokens")
until(b"> ")
if "about" not in open(os.environ["HISTORY"]).read(): sys.exit("the history waits for the end")
os.write(fd, b"One line\x1b\rand another one.\r")
until(b"cut off at --max-tokens")
until(b"> ")
os.write(fd, b"/again\r")
until(b"cut off at --max-tokens")
until(b"> ")
os.write(fd, ("/save %s\r" % os.environ["TRANSCRIPT"]).encode())
until(b"written to")
until(b"> ")
os.write(fd, b"/undo\r")
until(b"taken back")
until(b"> ")
os.write(fd, b"\x04")
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let Some(model) = model(SMOLLM2) else { return };
    let mut python = Command::new("python3");
    python.args(["-c", SCRIPT, env!("CARGO_BIN_EXE_strata"), "run"]).arg(model);
    python.args(["--temperature", "0", "--max-tokens", "3000", "--plugin"]).arg(cpu_plugin());
    python.env("STRATA_STATE_DIR", state_dir().join("chat")).env("TERM", "xterm");
    let transcript = state_dir().join("chat/transcript.md");
    python.env("TRANSCRIPT", &transcript).env("HISTORY", state_dir().join("chat/chat-history"));
    // Whether or not an earlier run left one.
    let _ = fs_err::remove_file(state_dir().join("chat/chat-history"));
    let output = match python.output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: python3 cannot be started: {error}"),
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{shown}", String::from_utf8_lossy(&output.stderr));
    // The second prompt finds the first conversation's tokens in the cache.
    let reused: Vec<&str> = shown.lines().filter(|line| line.contains(" reused + ")).collect();
    assert_eq!(reused.len(), 5, "{shown}");
    let transcript = fs_err::read_to_string(transcript).unwrap();
    let host = fs_err::read_to_string("/etc/hostname").unwrap();
    assert!(transcript.contains(host.trim()), "the file went with the question: {transcript}");
    assert_eq!(transcript.matches("Say a word about").count(), 1, "asked again, not twice: {transcript}");
    assert!(transcript.contains("One line\nand another one."), "Alt-Enter begins a line: {transcript}");
    assert!(reused[0].contains("(0 reused") && !reused[1].contains("(0 reused"), "{reused:?}");
}
