// The monitor: what the server does now and did before.

const SECONDS = 60;
const rates = [];
let last = null;

const number = (value, digits = 0) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits }));

function bytes(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  return `${number(value / 1024 ** unit, 1)} ${units[unit]}`;
}

function duration(seconds) {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
}

function rows(table, list) {
  const body = table.tBodies[0];
  const columns = table.tHead.rows[0].cells.length;
  const row = (cells) => {
    const node = document.createElement("tr");
    for (const cell of cells) {
      const field = document.createElement("td");
      field.textContent = cell;
      node.append(field);
    }
    return node;
  };
  if (list.length > 0) {
    body.replaceChildren(...list.map(row));
    return;
  }
  const nothing = row(["nothing"]);
  nothing.cells[0].colSpan = columns;
  body.replaceChildren(nothing);
}

function list(node, entries) {
  const parts = entries.flatMap(([name, value]) => {
    const term = document.createElement("dt");
    term.textContent = name;
    const description = document.createElement("dd");
    description.textContent = value;
    return [term, description];
  });
  node.replaceChildren(...parts);
}

// Tokens of answers per second since the last look.
function rate(status) {
  const now = performance.now();
  const tokens = status.totals?.generated_tokens ?? 0;
  const current = last && now > last.now ? ((tokens - last.tokens) * 1000) / (now - last.now) : 0;
  last = { now, tokens };
  rates.push(Math.max(0, current));
  if (rates.length > SECONDS) {
    rates.shift();
  }
  return current;
}

function chart(node) {
  const most = Math.max(1, ...rates);
  const x = (index) => (240 * (index + SECONDS - rates.length)) / (SECONDS - 1);
  const y = (value) => 58 - (56 * value) / most;
  node.querySelector("polyline").setAttribute("points", rates.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" "));
  node.setAttribute("aria-label", `Tokens per second over the last minute: now ${number(rates.at(-1) ?? 0, 1)}, most ${number(most, 1)}`);
}

export function show(status) {
  const current = rate(status);
  const cache = status.cache ?? {};
  const backend = status.backend ?? {};
  const used = Math.max(0, ...(status.active ?? []).map((request) => request.evaluated_tokens + 1));
  const memory = status.model_memory ?? {};
  list(document.getElementById("figures"), [
    ["Backend", `${backend.plugin ?? "–"} on ${backend.device ?? "–"}`],
    ["Why", backend.reason ?? "–"],
    ["Device", backend.report ?? "–"],
    ["Tokens/s", number(current, 1)],
    ["Queue", `${number(status.active?.length ?? 0)} of ${number(status.slots)} slots, ${number(status.queue?.waiting ?? 0)} waiting`],
    ["Context", `${number(used)} of ${number(status.model?.context)} tokens in the longest request`],
    ["Cache", `${number(cache.pages_in_use)} of ${number(cache.pages)} pages; conversations ${bytes(cache.conversation_bytes)} of ${bytes(cache.conversation_budget)}`],
    ["Weights", bytes(memory.weights)],
    ["KV cache", `${bytes(memory.kv)} reserved, ${status.settings?.kv ?? "–"}`],
    ["Process", `${bytes(status.memory?.own_bytes)} own, ${bytes(status.memory?.resident_bytes)} with mapped files`],
    ["Prompt tokens", `${number(status.totals?.prompt_tokens)} read, ${number(status.totals?.reused_tokens)} reused`],
    ["Answers", `${number(status.totals?.finished)} finished, ${number(status.totals?.cancelled)} cancelled, ${number(status.totals?.failed)} failed`],
    ["Running", duration(status.uptime_seconds ?? 0)],
  ]);
  chart(document.getElementById("chart"));
  const active = (status.active ?? []).map((request) => [
    request.id,
    number(request.prompt_tokens),
    number(request.reused_tokens),
    number(Math.min(request.evaluated_tokens, request.prompt_tokens)),
    number(request.generated_tokens),
    number(request.tokens_per_second, 1),
  ]);
  rows(document.getElementById("active"), active);
  const recent = (status.recent ?? []).map((request) => [
    request.path.replace("/v1/", ""),
    request.outcome,
    number(request.prompt_tokens),
    number(request.reused_tokens),
    number(request.generated_tokens),
    request.first_token_seconds === null ? "–" : `${number(request.first_token_seconds, 2)} s`,
    number(request.tokens_per_second, 1),
  ]);
  rows(document.getElementById("recent"), recent);
}
