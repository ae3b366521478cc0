#!/usr/bin/env bash
# Measures the CUDA plugin on the card of this machine; the outputs in this folder came of it.
#
#   h200.sh PREFIX CONFORM TOOLS TOKENIZER.gguf WORK OUT [SECTION...]
#
# PREFIX: an installation (`cargo xtask stage --prefix`). CONFORM: the program `strata-conform`. TOOLS: folder with
# make_moe_gguf.py, and the references synthetic-exact.json and exact-*.json. WORK: room for models (25 GB). OUT: a folder
# for the outputs. Without sections, all of them.
set -u
prefix=$1 conform=$2 tools=$3 tokenizer=$4 work=$5 out=$6
shift 6
sections=${*:-card models conform selftest auto speed exact greedy start fresh batch formats profile sanitizer}
strata=$prefix/bin/strata
mkdir -p "$work" "$out"

says() { echo "\$ $*"; "$@" 2>&1; }
make_model() { # name, arguments
    [ -s "$work/$1.gguf" ] && return
    python3 "$tools/make_moe_gguf.py" --out "$work/$1.gguf" --tokenizer-from "$tokenizer" "${@:2}" >"$work/$1.log" 2>&1
}
shape() {
    case $1 in
    q05) echo --arch qwen3 --layers 28 --hidden 1024 --heads 16 --kv-heads 8 --head-dim 128 --ffn 3072 --qtype Q4_K --embd-type Q8_0 ;;
    q7) echo --arch qwen3 --layers 36 --hidden 4096 --heads 32 --kv-heads 8 --head-dim 128 --ffn 12288 --qtype Q4_K --embd-type Q8_0 ;;
    q30) echo --arch qwen3moe --layers 48 --hidden 2048 --heads 32 --kv-heads 4 --head-dim 128 --experts 128 --top-k 8 --ffn 768 --qtype Q4_K --embd-type Q8_0 ;;
    esac
}

for section in $sections; do
    began=$(date +%s)
    case $section in
    card)
        { nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv; says "$strata" --version; } >"$out/card.txt" 2>&1
        ;;
    models)
        for model in q05 q7 q30; do make_model $model $(shape $model) & done
        for case in "qwen3-F32:--arch qwen3 --layers 4 --hidden 256 --heads 8 --kv-heads 2 --head-dim 32 --ffn 512 --qtype F32 --embd-type F32 --aux-type F32" \
            "qwen3moe-Q4_K:--arch qwen3moe --layers 4 --hidden 512 --heads 8 --kv-heads 2 --head-dim 64 --experts 32 --top-k 4 --ffn 256 --qtype Q4_K --embd-type Q8_0" \
            "qwen3moe-Q4_0:--arch qwen3moe --layers 4 --hidden 512 --heads 8 --kv-heads 2 --head-dim 64 --experts 32 --top-k 4 --ffn 256 --qtype Q4_0 --down-qtype Q5_0 --embd-type Q8_0"; do
            make_model "synthetic-${case%%:*}" ${case#*:} &
        done
        wait
        ls -l "$work"/*.gguf
        ;;
    conform) says "$conform" --plugin "$prefix/lib/strata/cuda/cuda.plugin.json" >"$out/conformance.txt" ;;
    selftest) says "$strata" doctor --selftest >"$out/selftest.txt" ;;
    auto) says "$strata" run "$work/q05.gguf" "Hello" -n 8 --temperature 0 --raw --backend-report >"$out/auto.txt" ;;
    speed)
        for model in q05 q7 q30; do
            [ -s "$work/$model.gguf" ] || continue
            says "$strata" bench "$work/$model.gguf" --prompt-tokens 512,4096 --decode-tokens 128 --runs 3
        done >"$out/speed.txt"
        ;;
    exact)
        for case in qwen3-F32 qwen3moe-Q4_K qwen3moe-Q4_0; do
            for more in "--backend cuda" "--backend cuda --precise" "--backend cpu" "--backend cpu --precise"; do
                says "$strata" eval "$work/synthetic-$case.gguf" --reference "$tools/synthetic-exact.json" --case $case $more
            done
        done >"$out/exact.txt"
        ;;
    greedy)
        for model in q05 smollm2; do
            [ -s "$work/$model.gguf" ] || continue
            for more in "--backend cpu --precise" "--backend cuda --precise" "--backend cuda"; do
                says "$strata" run "$work/$model.gguf" "The capital of France is" --raw --temperature 0 -n 48 --json $more
            done
        done >"$out/greedy.txt"
        ;;
    start)
        for i in 1 2 3; do
            python3 - "$strata" "$work/q7.gguf" <<'PY'
import subprocess, sys, threading, time
began = time.monotonic()
at = lambda: time.monotonic() - began
process = subprocess.Popen([sys.argv[1], "run", sys.argv[2], "Hello", "--raw", "-n", "16", "--temperature", "0", "--backend-report"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
marks = {}
def listen():
    for line in process.stderr:
        for name, words in (("backend chosen", b"chosen: "), ("a tenth of the weights", b"weights: 10 %"), ("all weights", b"weights: 100 %")):
            if line.startswith(words) or words in line and b"weights" in words:
                marks.setdefault(name, at())
listener = threading.Thread(target=listen)
listener.start()
process.stdout.read(1)
marks["first byte of the answer"] = at()
process.wait()
marks["end"] = at()
listener.join()
print("; ".join(f"{name} after {seconds:.2f} s" for name, seconds in marks.items()))
PY
        done >"$out/start.txt" 2>&1
        ;;
    batch)
        for model in q05 q7 q30; do
            [ -s "$work/$model.gguf" ] && says python3 "$(dirname "$0")/batch.py" "$strata" "$work/$model.gguf"
        done >"$out/batch.txt"
        ;;
    formats)
        for format in Q4_K Q5_K Q6_K Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL IQ4_XS IQ3_XXS IQ2_XXS MXFP4; do
            make_model "f-$format" $(shape q05 | sed "s/Q4_K/$format/")
            [ -s "$work/f-$format.gguf" ] || continue
            ls -s --block-size=1 "$work/f-$format.gguf" | cut -d' ' -f1
            says "$strata" bench "$work/f-$format.gguf" --prompt-tokens 4096 --decode-tokens 128 --runs 3
            rm "$work/f-$format.gguf"
        done >"$out/formats.txt"
        ;;
    fresh)
        says python3 "$(dirname "$0")/fresh_starts.py" "$strata" "$work/q05.gguf" 24 >"$out/fresh.txt"
        ;;
    profile)
        for model in q05 q7 q30; do
            [ -s "$work/$model.gguf" ] || continue
            ncu --clock-control none --metrics gpu__time_duration.sum --target-processes all --csv --log-file "$out/ncu-$model.csv" \
                "$strata" bench "$work/$model.gguf" --prompt-tokens 4096 --decode-tokens 1 --runs 1 >"$out/ncu-$model.txt" 2>&1
        done
        ;;
    sanitizer)
        says timeout "${SANITIZER_SECONDS:-100}" compute-sanitizer --target-processes all --print-limit 20 "$conform" \
            --plugin "$prefix/lib/strata/cuda/cuda.plugin.json" ${SANITIZER_FILTER:+--filter $SANITIZER_FILTER} >"$out/sanitizer.txt"
        ;;
    esac
    echo "$section: $(($(date +%s) - began)) s"
done
