#!/usr/bin/env python3
"""What packaging/container says, tried without a container engine and without a cluster.

    python3 packaging/container/rehearse.py --validate-only
    sudo python3 packaging/container/rehearse.py --release RELEASE --base debootstrap-of-bookworm [--model NAME]

The first checks kubernetes.yaml against the schemas of Kubernetes (Python package `kubernetes-validate`) and what the
files say of each other. The second, as root on Linux, carries out the steps of Containerfile in copies of BASE by
chroot, then runs the pod's containers as kubernetes.yaml says: its user and groups, a root file system that cannot be
written, no new privileges, volumes of their own, init container first, probes, two replicas, nginx with gateway.conf
before them, a request through it while one replica is ended, and the end by signal. What differs from a cluster is
printed: RELEASE is served on loopback, replicas have a port each, and control groups, seccomp and the network of
pods are not there. A plain script, since it stands in for programs that are not ours.
"""

import argparse, ctypes, http.client, http.server, json, os, re, shlex, shutil, signal, subprocess, sys
import tempfile, threading, time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
KUBERNETES = "1.30"
KEY = "a-key-of-the-rehearsal"
PORTS = {0: 18081, 1: 18082}
GATEWAY = 18080
RELEASE_PORT = 18079


def say(text):
    print(text, flush=True)


def check(fact, what):
    say(f"{'ok' if fact else 'WRONG'}: {what}")
    if not fact:
        sys.exit(1)


# ---------------------------------------------------------------- what the files say


def documents():
    return {d["kind"]: d for d in yaml.safe_load_all((HERE / "kubernetes.yaml").read_text())}


def validate():
    import kubernetes_validate

    found = documents()
    for kind, document in found.items():
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        say(f"ok: {kind} fits the schema of Kubernetes {KUBERNETES}")
    pod = found["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"].items()
    for kind, selector in [
        ("Deployment", found["Deployment"]["spec"]["selector"]["matchLabels"]),
        ("Service", found["Service"]["spec"]["selector"]),
        ("PodDisruptionBudget", found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]),
    ]:
        check(selector.items() <= labels, f"{kind} selects the pods")
    spec = pod["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["initContainers"] + spec["containers"]:
        name = container["name"]
        security = container["securityContext"]
        check(security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], f"{name} is locked up")
        check(security["capabilities"]["drop"] == ["ALL"], f"{name} has no capabilities")
        check({mount["name"] for mount in container["volumeMounts"]} <= volumes, f"{name} mounts volumes that are there")
        check(set(container["resources"]["limits"]) == {"cpu", "memory"}, f"{name} has limits")
    check(spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0, "nobody is root")
    serve = spec["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        check(serve[probe]["httpGet"] == {"path": "/health", "port": "http"}, f"{probe} asks /health")
    ports = {port["name"]: port["containerPort"] for port in serve["ports"]}
    check(f"--port={ports['http']}" in serve["args"], "the port that is probed is the one that is served")
    check(found["Service"]["spec"]["ports"][0]["targetPort"] in ports, "the service leads to that port")
    grace = int(next(word for word in serve["args"] if word.startswith("--grace=")).split("=")[1])
    pause = int(serve["lifecycle"]["preStop"]["exec"]["command"][1])
    check(grace + pause < spec["terminationGracePeriodSeconds"], "answers may end before the pod is killed")
    user = next(words for word, words in instructions() if word == "USER")
    check(user.split(":")[0] == str(spec["securityContext"]["runAsUser"]), "image and pod name the same user")


def instructions():
    """Words and rest of each line of Containerfile."""
    text = (HERE / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split(" ", 1) for line in lines]


# ---------------------------------------------------------------- the image


def in_root(root, command, **more):
    return subprocess.run(["chroot", str(root), "/bin/sh", "-c", command], check=True, **more)


def build(base, release, work):
    """Carries out Containerfile; gives the last stage's root and settings."""
    stages, root, settings = {}, None, {}
    for word, rest in instructions():
        say(f"$ {word} {rest}")
        if word == "FROM":
            name = rest.split(" AS ")[1] if " AS " in rest else "last"
            root, settings = work / name, {"ENV": {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
            subprocess.run(["cp", "-a", str(base), str(root)], check=True)
            stages[name] = root
            for kind in ("proc", "dev"):
                subprocess.run(["mount", "--rbind", f"/{kind}", str(root / kind)], check=True)
        elif word == "ARG":
            name, value = rest.split("=", 1)
            settings["ENV"][name] = shlex.split(value)[0]
        elif word == "COPY":
            *_, source, target = rest.split()
            stage = re.search(r"--from=(\S+)", rest)
            source = stages[stage[1]] / source.lstrip("/") if stage else release
            (root / target.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", "--no-preserve=ownership", str(source), str(root / target.lstrip("/"))], check=True)
        elif word == "RUN":
            in_root(root, rest, env=settings["ENV"])
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, value = pair.split("=", 1)
                settings["ENV"][name] = value
        elif word in ("ENTRYPOINT", "CMD"):
            settings[word] = json.loads(rest)
        elif word in ("USER", "EXPOSE"):
            settings[word] = rest
        else:
            sys.exit(f"the rehearsal knows no {word}")
    return root, settings


# ---------------------------------------------------------------- the pod


STARTED = []


def started(words, **more):
    STARTED.append(subprocess.Popen(words, **more))
    return STARTED[-1]


class Pod:
    def __init__(self, number, image, settings, spec, values, work):
        self.number, self.image, self.settings, self.spec, self.values = number, image, settings, spec, values
        self.folder = work / f"pod-{number}"
        security = spec["securityContext"]
        self.user, self.group, self.shared = security["runAsUser"], security["runAsGroup"], security["fsGroup"]
        for volume in spec["volumes"]:
            path = self.folder / "volumes" / volume["name"]
            path.mkdir(parents=True)
            if "secret" in volume:
                (path / "keys").write_text(KEY)
                os.chmod(path / "keys", volume["secret"]["defaultMode"])
                os.chown(path / "keys", 0, self.shared)
            # As kubelet leaves a volume: root's, of the pod's group, which may write.
            os.chown(path, 0, self.shared)
            os.chmod(path, 0o2775)

    def expanded(self, word):
        return re.sub(r"\$\((\w+)\)", lambda found: self.values[found[1]], word)

    def start(self, container, **more):
        """One container in a mount namespace of its own."""
        root = self.folder / container["name"]
        root.mkdir()
        command = container.get("command") or self.settings["ENTRYPOINT"]
        words = [self.expanded(word) for word in command + container.get("args", [])]
        words = [f"--port={PORTS[self.number]}" if word.startswith("--port=") else word for word in words]
        environment = {name: value for name, value in self.settings["ENV"].items() if name != "SETUP_FLAGS"}
        environment.update(self.values)

        def confine():
            libc = ctypes.CDLL(None, use_errno=True)
            def mount(*what):
                subprocess.run(["mount", *map(str, what)], check=True)
            if libc.unshare(0x00020000):
                raise OSError(ctypes.get_errno(), "unshare")
            mount("--make-rprivate", "/")
            mount("--bind", self.image, root)
            mount("-t", "proc", "proc", root / "proc")
            mount("--rbind", "/dev", root / "dev")
            for volume in container["volumeMounts"]:
                target = root / volume["mountPath"].lstrip("/")
                mount("--bind", self.folder / "volumes" / volume["name"], target)
                if volume.get("readOnly"):
                    mount("-o", "remount,bind,ro", target)
            if container["securityContext"]["readOnlyRootFilesystem"]:
                mount("-o", "remount,bind,ro", root)
            os.chroot(root)
            os.chdir("/")
            os.setgroups([self.shared])
            os.setgid(self.group)
            os.setuid(self.user)
            # No new privileges, whatever is started.
            libc.prctl(38, 1, 0, 0, 0)

        say(f"pod {self.number}, {container['name']}: {shlex.join(words)}")
        return started(words, env=environment, preexec_fn=confine, **more)


def ask(port, path, body=None, key=KEY):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def wait_until_ready(port, probe, process):
    """The startup probe, as kubelet asks it."""
    for tried in range(probe["failureThreshold"]):
        check(process.poll() is None, "the server runs")
        try:
            status, text = ask(port, probe["httpGet"]["path"], key=None)
            if status == 200:
                return tried, text
        except OSError:
            pass
        time.sleep(probe["periodSeconds"])
    sys.exit("the startup probe gave up")


def serve_release(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = lambda *arguments: Quiet(*arguments, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", RELEASE_PORT), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def rehearse(release, base, model, work):
    image, settings = build(base, release, work)
    for stage in work.iterdir():
        for kind in ("proc", "dev"):
            subprocess.run(["umount", "-R", "-l", str(stage / kind)], check=True)
    found = documents()
    spec = found["Deployment"]["spec"]["template"]["spec"]
    for mount in {m["mountPath"] for c in spec["initContainers"] + spec["containers"] for m in c["volumeMounts"]}:
        (image / mount.lstrip("/")).mkdir(exist_ok=True)
    say(f"instead of {found['ConfigMap']['data']['RELEASE']}: the release folder on loopback")
    serve_release(release)
    values = dict(found["ConfigMap"]["data"], RELEASE=f"http://127.0.0.1:{RELEASE_PORT}", **({"MODEL": model} if model else {}))
    serve = spec["containers"][0]
    replicas, processes, pods = found["Deployment"]["spec"]["replicas"], [], []
    for number in range(replicas):
        pod = Pod(number, image, settings, spec, values, work)
        pods.append(pod)
        for container in spec["initContainers"]:
            check(pod.start(container).wait() == 0, f"pod {number}: init container {container['name']} ended well")
        log = (work / f"pod-{number}.log").open("w")
        process = pod.start(serve, stderr=log)
        processes.append(process)
        tries, health = wait_until_ready(PORTS[number], serve["startupProbe"], process)
        say(f"ok: pod {number} is ready at probe {tries + 1}: {health.strip()}")
        status = Path(f"/proc/{process.pid}/status").read_text()
        for fact, name in [("Uid:\t10001", "it is not root"), ("CapEff:\t0000000000000000", "it has no capabilities"),
                           ("NoNewPrivs:\t1", "it gets no new privileges")]:
            check(fact in status, f"pod {number}: {name}")
        say(f"pod {number}: {resident(process.pid):.0f} MiB resident, limit {serve['resources']['limits']['memory']}")
    gateway = started(["nginx", "-c", str(HERE / "gateway.conf"), "-p", str(work), "-g", "daemon off; pid nginx.pid; error_log stderr;"])
    processes.append(gateway)
    time.sleep(1)
    words = "Name three colours."
    question = {"model": "any", "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": words}]}
    status, text = ask(GATEWAY, "/v1/chat/completions", question)
    check(status == 200, f"an answer through the gateway: {text}")
    answer = json.loads(text)["choices"][0]["message"]["content"]
    # The same image asked without a server, in the same locked up container.
    run = {"name": "run", "command": ["strata", "run", "/models/models/$(MODEL_FILE)", words, "--temperature=0", "--max-tokens=24"]}
    alone = pods[0].start(dict(serve, args=[], **run), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).communicate()[0].decode()
    check(answer and answer.strip() == alone.strip(), f"it is what `strata run` answers: {answer!r}")
    check(ask(GATEWAY, "/v1/chat/completions", question, key=None)[0] == 401, "without a key there is none")
    status, text = ask(GATEWAY, "/v1/chat/completions", dict(question, stream=True))
    check(status == 200 and text.count("data: ") > 5 and text.rstrip().endswith("[DONE]"), "a stream comes through whole")
    answers = [json.loads(ask(port, "/v1/chat/completions", question)[1])["choices"][0]["message"]["content"] for port in PORTS.values()]
    check(len(set(answers)) == 1, "both replicas give the same greedy answer")
    # A replica goes while requests come.
    results, stop = [], threading.Event()
    def client():
        while not stop.is_set():
            results.append(ask(GATEWAY, "/v1/chat/completions", question)[0])
    clients = [threading.Thread(target=client) for _ in range(3)]
    [thread.start() for thread in clients]
    time.sleep(2)
    processes[0].send_signal(signal.SIGTERM)
    check(processes[0].wait(timeout=40) == 0, "a replica that is told to end does, with status 0")
    time.sleep(2)
    stop.set()
    [thread.join() for thread in clients]
    check(results and set(results) == {200}, f"{len(results)} requests while a replica went, every one answered")
    for process in reversed(processes[1:]):
        process.terminate()
    check(processes[1].wait(timeout=40) == 0, "the other one ends too")
    gateway.wait(timeout=10)
    say("rehearsed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--validate-only", action="store_true")
    parser.add_argument("--release", type=Path)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    validate()
    if arguments.validate_only:
        return
    # Everything that is mounted goes with this process.
    if not os.environ.get("REHEARSAL"):
        os.execvpe("unshare", ["unshare", "--mount", "--", sys.executable, *sys.argv], dict(os.environ, REHEARSAL="1"))
    work = Path(tempfile.mkdtemp(prefix="strata-rehearsal-"))
    os.chmod(work, 0o755)
    try:
        rehearse(arguments.release.resolve(), arguments.base.resolve(), arguments.model, work)
    except BaseException:
        for log in work.glob("*.log"):
            say(f"--- {log.name}\n{log.read_text()}")
        raise
    finally:
        for process in STARTED:
            process.kill()
            process.wait()
        if not any((stage / "dev/null").exists() and os.path.ismount(stage / "dev") for stage in work.iterdir()):
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
