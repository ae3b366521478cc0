// The chat: conversations, the message box, settings, and the state of the server.

import { render } from "./markdown.js";
import * as monitor from "./monitor.js";
import * as server from "./server.js";
import * as store from "./store.js";

const find = (id) => document.getElementById(id);
const FIELDS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];
const REDRAW = 80;

let chats = store.chats();
let current = null;
let answering = null;

// ── Conversations ────────────────────────────────────────────────────────────────────────────────

function fresh() {
  return { id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), title: "", messages: [] };
}

function keep() {
  if (!current.messages.length) {
    return;
  }
  chats = store.keepChats([current, ...chats.filter((chat) => chat.id !== current.id)]);
  showChats();
}

function showChats() {
  const entry = (chat) => {
    const item = document.createElement("li");
    if (chat.id === current.id) {
      item.setAttribute("aria-current", "true");
    }
    const open = document.createElement("button");
    open.textContent = chat.title || "Conversation";
    open.addEventListener("click", () => select(chat));
    const remove = document.createElement("button");
    remove.className = "delete";
    remove.textContent = "×";
    remove.setAttribute("aria-label", `Delete “${chat.title || "Conversation"}”`);
    remove.addEventListener("click", () => forget(chat));
    item.append(open, remove);
    return item;
  };
  find("chat-list").replaceChildren(...chats.map(entry));
  find("clear-chats").hidden = chats.length === 0;
}

function select(chat) {
  stop();
  current = chat;
  find("chats").classList.remove("open");
  find("show-chats").setAttribute("aria-expanded", "false");
  problem("");
  showChats();
  showMessages();
  find("prompt").focus();
}

function forget(chat) {
  chats = store.keepChats(chats.filter((other) => other.id !== chat.id));
  if (chat.id === current.id) {
    select(fresh());
  } else {
    showChats();
  }
}

// ── Messages ─────────────────────────────────────────────────────────────────────────────────────

function button(text, label, act) {
  const node = document.createElement("button");
  node.type = "button";
  node.textContent = text;
  node.setAttribute("aria-label", label);
  node.addEventListener("click", act);
  return node;
}

async function copy(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    node.textContent = "Copied";
  } catch {
    node.textContent = "Not allowed";
  }
  setTimeout(() => (node.textContent = "Copy"), 1500);
}

function timing(message) {
  const timings = message.timings;
  if (!timings) {
    return message.stopped ? "stopped" : "";
  }
  const parts = [`${timings.predicted_n} tokens`];
  if (timings.predicted_per_second) {
    parts.push(`${timings.predicted_per_second.toFixed(1)} per second`);
  }
  parts.push(`prompt ${timings.prompt_n + timings.cache_n} (${timings.cache_n} reused)`);
  parts.push(`context ${timings.context} of ${timings.context_size}`);
  if (message.finish === "length") {
    parts.push("cut off by its limit");
  }
  return parts.join(", ");
}

// Fills the node of a message; again and again while the message grows.
function fill(node, message) {
  const said = node.querySelector(".said");
  if (message.role === "user") {
    said.textContent = message.content;
    return;
  }
  const details = node.querySelector("details");
  details.hidden = !message.reasoning;
  details.querySelector("div").textContent = message.reasoning ?? "";
  said.replaceChildren(...render(message.content));
  node.querySelector(".timing").textContent = timing(message);
}

function messageNode(message, index) {
  const node = document.createElement("li");
  node.className = message.role;
  const who = document.createElement("p");
  who.className = "who";
  who.textContent = message.role === "user" ? "You" : "Model";
  const said = document.createElement("div");
  said.className = "said";
  const tools = document.createElement("div");
  tools.className = "tools";
  const copier = button("Copy", "Copy this message", () => copy(message.content, copier));
  tools.append(copier);
  node.append(who);
  if (message.role === "user") {
    tools.append(button("Edit", "Edit this message and ask again", () => edit(index)));
  } else {
    const details = document.createElement("details");
    details.className = "reasoning";
    const summary = document.createElement("summary");
    summary.textContent = "Reasoning";
    details.append(summary, document.createElement("div"));
    node.append(details);
    tools.append(button("Regenerate", "Regenerate this answer", () => regenerate(index)));
    const timed = document.createElement("span");
    timed.className = "timing";
    tools.append(timed);
  }
  node.append(said, tools);
  fill(node, message);
  return node;
}

function showMessages() {
  find("empty").hidden = current.messages.length > 0;
  find("messages").replaceChildren(...current.messages.map(messageNode));
  find("log").scrollTop = find("log").scrollHeight;
}

function edit(index) {
  stop();
  find("prompt").value = current.messages[index].content;
  current.messages.length = index;
  keep();
  showMessages();
  grow();
  find("prompt").focus();
}

function regenerate(index) {
  stop();
  current.messages.length = index;
  showMessages();
  answer();
}

// ── Answers ──────────────────────────────────────────────────────────────────────────────────────

function request() {
  const settings = store.settings();
  const messages = current.messages.map(({ role, content }) => ({ role, content }));
  if (settings.system) {
    messages.unshift({ role: "system", content: settings.system });
  }
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  for (const field of FIELDS) {
    if (typeof settings[field] === "number") {
      body[field] = settings[field];
    }
  }
  return body;
}

// Keeps the end in view, unless the reader has gone up.
function follow(work) {
  const log = find("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  work();
  if (atEnd) {
    log.scrollTop = log.scrollHeight;
  }
}

function take(message, chunk) {
  const choice = chunk.choices?.[0];
  message.content += choice?.delta?.content ?? "";
  if (choice?.delta?.reasoning_content) {
    message.reasoning = (message.reasoning ?? "") + choice.delta.reasoning_content;
  }
  message.finish = choice?.finish_reason ?? message.finish;
  message.timings = chunk.timings ?? message.timings;
}

async function answer() {
  const chat = current;
  const body = request();
  const message = { role: "assistant", content: "" };
  chat.messages.push(message);
  const node = messageNode(message, chat.messages.length - 1);
  find("messages").append(node);
  node.querySelector(".said").classList.add("writing");
  node.setAttribute("aria-busy", "true");
  const control = new AbortController();
  answering = control;
  busy(true);
  problem("");
  announce("The model is answering");
  let drawn = 0;
  const draw = () => {
    drawn = performance.now();
    if (current === chat) {
      follow(() => fill(node, message));
    }
  };
  try {
    for await (const chunk of server.chat(body, control.signal)) {
      take(message, chunk);
      if (performance.now() - drawn > REDRAW) {
        draw();
      }
    }
    announce("The answer is complete");
  } catch (error) {
    if (control.signal.aborted) {
      message.stopped = true;
      announce("Stopped");
    } else {
      failed(error);
    }
    if (!message.content && !message.reasoning) {
      chat.messages.splice(chat.messages.indexOf(message), 1);
      node.remove();
    }
  }
  node.querySelector(".said").classList.remove("writing");
  node.removeAttribute("aria-busy");
  draw();
  if (answering === control) {
    answering = null;
    busy(false);
  }
  if (current === chat) {
    keep();
  } else if (chats.some((other) => other.id === chat.id)) {
    chats = store.keepChats(chats);
  }
}

function stop() {
  answering?.abort();
}

function busy(is) {
  // Focus must not fall off a button that goes away.
  const focused = document.activeElement;
  find("send").hidden = is;
  find("stop").hidden = !is;
  if (focused === find("send") || focused === find("stop")) {
    find(is ? "stop" : "send").focus();
  }
}

function send() {
  const text = find("prompt").value.trim();
  if (!text || answering) {
    return;
  }
  const message = { role: "user", content: text };
  current.title ||= text.split("\n")[0].slice(0, 60);
  current.messages.push(message);
  find("empty").hidden = true;
  find("messages").append(messageNode(message, current.messages.length - 1));
  find("prompt").value = "";
  grow();
  find("log").scrollTop = find("log").scrollHeight;
  keep();
  answer();
}

function failed(error) {
  if (error.status === 401) {
    askForKey();
  }
  const hints = (error.hints ?? []).map((hint) => `\n${hint}`).join("");
  problem(`${error.message}${hints}`);
  announce("The answer failed");
}

function problem(text) {
  find("problem").textContent = text;
  find("problem").hidden = !text;
}

function announce(text) {
  find("announce").textContent = text;
}

function grow() {
  const prompt = find("prompt");
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

// ── State of the server ──────────────────────────────────────────────────────────────────────────

let asked = false;

function askForKey() {
  const dialog = find("key-dialog");
  if (!asked && !dialog.open) {
    asked = true;
    dialog.showModal();
  }
}

function state(word, text) {
  const node = find("state");
  if (node.textContent !== text) {
    node.textContent = text;
  }
  node.dataset.state = word;
}

function showDefaults(sampling) {
  for (const field of FIELDS) {
    if (sampling?.[field] !== undefined) {
      find(field).placeholder = Math.round(sampling[field] * 1000) / 1000;
    }
  }
}

async function look() {
  let next = 1000;
  try {
    const status = await server.status();
    const isReady = status.status === "ready";
    const backend = status.backend;
    find("model").textContent = status.model ? `${status.model.id} on ${backend?.device ?? "?"} (${backend?.plugin ?? "?"})` : "";
    find("model").title = backend?.reason ?? "";
    const progress = status.progress?.total ? ` ${Math.round((100 * status.progress.done) / status.progress.total)} %` : "";
    state(isReady ? "ready" : status.status === "loading" ? "loading" : "bad", `${status.status}${progress}${status.why ? `: ${status.why}` : ""}`);
    showDefaults(status.sampling);
    if (!find("monitor").hidden) {
      monitor.show(status);
    } else if (isReady) {
      next = 5000;
    }
  } catch (error) {
    state("bad", error.status === 401 ? "key needed" : "no connection");
    if (error.status === 401) {
      askForKey();
    }
    next = 2000;
  }
  clearTimeout(look.timer);
  look.timer = setTimeout(look, document.hidden ? 10000 : next);
}

// ── The page ─────────────────────────────────────────────────────────────────────────────────────

function toggle(buttonId, panelId, then) {
  const shown = find(panelId).hidden;
  for (const [button, panel] of [["show-settings", "settings"], ["show-monitor", "monitor"]]) {
    find(panel).hidden = panel !== panelId || !shown;
    find(button).setAttribute("aria-expanded", String(!find(panel).hidden));
  }
  if (shown) {
    then?.();
  }
}

function showSettings() {
  const settings = store.settings();
  find("system").value = settings.system ?? "";
  for (const field of FIELDS) {
    find(field).value = settings[field] ?? "";
  }
}

function takeSettings() {
  const settings = { system: find("system").value };
  for (const field of FIELDS) {
    const value = find(field).valueAsNumber;
    if (!Number.isNaN(value)) {
      settings[field] = value;
    }
  }
  store.keepSettings(settings);
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  store.keepTheme(next);
}

function start() {
  const kept = store.theme();
  if (kept === "light" || kept === "dark") {
    document.documentElement.dataset.theme = kept;
  }
  current = chats[0] ?? fresh();
  showChats();
  showMessages();
  showSettings();
  find("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  find("prompt").addEventListener("input", grow);
  find("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && answering) {
      stop();
    }
  });
  find("stop").addEventListener("click", stop);
  find("new-chat").addEventListener("click", () => select(fresh()));
  find("clear-chats").addEventListener("click", () => {
    if (confirm("Delete all conversations that this browser keeps?")) {
      chats = store.keepChats([]);
      select(fresh());
    }
  });
  find("show-chats").addEventListener("click", () => {
    const open = find("chats").classList.toggle("open");
    find("show-chats").setAttribute("aria-expanded", String(open));
  });
  find("show-settings").addEventListener("click", () => toggle("show-settings", "settings", () => find("system").focus()));
  find("show-monitor").addEventListener("click", () => toggle("show-monitor", "monitor", look));
  find("settings").addEventListener("input", takeSettings);
  find("reset-settings").addEventListener("click", () => {
    store.keepSettings({});
    showSettings();
  });
  find("theme").addEventListener("click", theme);
  find("key-dialog").addEventListener("close", () => {
    server.setKey(find("key").value.trim(), find("keep-key").checked);
    find("key").value = "";
    asked = false;
    problem("");
    look();
  });
  find("messages").addEventListener("click", (event) => {
    const node = event.target.closest("[data-copy]");
    if (node) {
      copy(node.closest("pre").querySelector("code").textContent, node);
    }
  });
  document.addEventListener("visibilitychange", look);
  look();
}

start();
