// Markdown to DOM nodes. What a model writes is never parsed as HTML: every node is made here and
// every text goes in as text, so nothing in an answer can run or load anything. Pictures become
// links, since fetching one would tell another server of the conversation.

const LINK = /^(https?:\/\/|mailto:)/i;

// One pattern for all inline forms, tried at each position.
const INLINE = new RegExp(
  [
    "(?<code>`+)(?<coded>[\\s\\S]*?[^`])\\k<code>(?!`)",
    "!?\\[(?<label>[^\\]\\n]*)\\]\\((?<target>[^)\\s]+)(?:\\s+\"[^\"]*\")?\\)",
    "(?<bare>https?:\\/\\/[^\\s<>\"')\\]]+)",
    "\\*\\*(?<strong>\\S(?:[\\s\\S]*?\\S)?)\\*\\*",
    "__(?<strong2>\\S(?:[\\s\\S]*?\\S)?)__(?!\\w)",
    "\\*(?<em>[^\\s*](?:[^*]*?[^\\s*])?)\\*",
    "(?<!\\w)_(?<em2>[^\\s_](?:[^_]*?[^\\s_])?)_(?!\\w)",
    "~~(?<gone>\\S(?:[\\s\\S]*?\\S)?)~~",
    "\\\\(?<escaped>[\\\\`*_{}\\[\\]()#+\\-.!|~<>])",
  ].join("|"),
  "g",
);

const DEEPEST = 12;

function element(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function link(target, children) {
  if (!LINK.test(target)) {
    return children;
  }
  const node = element("a", ...children);
  node.href = target;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
  return [node];
}

function inline(text, depth = 0) {
  if (depth > DEEPEST) {
    return [text];
  }
  const nodes = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    const groups = match.groups;
    nodes.push(text.slice(last, match.index));
    last = match.index + match[0].length;
    const inner = (part) => inline(part, depth + 1);
    if (groups.coded !== undefined) {
      nodes.push(element("code", groups.coded.replace(/^ (.*) $/s, "$1")));
    } else if (groups.target !== undefined) {
      nodes.push(...link(groups.target, inner(groups.label || groups.target)));
    } else if (groups.bare !== undefined) {
      const bare = groups.bare.replace(/[.,;:!?]+$/, "");
      nodes.push(...link(bare, [bare]), groups.bare.slice(bare.length));
    } else if (groups.strong !== undefined || groups.strong2 !== undefined) {
      nodes.push(element("strong", ...inner(groups.strong ?? groups.strong2)));
    } else if (groups.em !== undefined || groups.em2 !== undefined) {
      nodes.push(element("em", ...inner(groups.em ?? groups.em2)));
    } else if (groups.gone !== undefined) {
      nodes.push(element("del", ...inner(groups.gone)));
    } else {
      nodes.push(groups.escaped);
    }
  }
  nodes.push(text.slice(last));
  return nodes.filter((node) => node !== "");
}

function codeBlock(lines, language) {
  const code = element("code", lines.join("\n"));
  const copy = element("button", "Copy");
  copy.type = "button";
  copy.dataset.copy = "code";
  const head = element("div", element("span", language || "text"), copy);
  head.className = "code-head";
  code.tabIndex = 0;
  return element("pre", head, code);
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function table(lines) {
  const row = (line, name) => element("tr", ...cells(line).map((cell) => element(name, ...inline(cell))));
  const head = element("thead", row(lines[0], "th"));
  const body = element("tbody", ...lines.slice(2).map((line) => row(line, "td")));
  return element("table", head, body);
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

function isTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && TABLE_RULE.test(lines[at + 1]);
}

function startsBlock(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || /^#{1,6}\s/.test(line) || /^\s*>/.test(line) || ITEM.test(line) || RULE.test(line) || isTable(lines, at);
}

// A list from `at` on: its node and the line after it.
function list(lines, at, depth) {
  const [, indent, mark] = lines[at].match(ITEM);
  const ordered = /\d/.test(mark);
  const node = document.createElement(ordered ? "ol" : "ul");
  if (ordered && parseInt(mark, 10) !== 1) {
    node.start = parseInt(mark, 10);
  }
  while (at < lines.length) {
    const match = lines[at].match(ITEM);
    if (!match || match[1].length < indent.length || /\d/.test(match[2]) !== ordered) {
      break;
    }
    const inner = [match[3]];
    at += 1;
    // What is indented further belongs to the item, blank lines between included.
    while (at < lines.length) {
      const line = lines[at];
      const next = lines[at + 1] ?? "";
      const deeper = line.length - line.trimStart().length > indent.length;
      const blankInside = line.trim() === "" && next.length - next.trimStart().length > indent.length && next.trim() !== "";
      if ((line.trim() !== "" && deeper) || blankInside) {
        inner.push(line.slice(Math.min(indent.length + 2, line.length - line.trimStart().length)));
        at += 1;
      } else if (line.trim() !== "" && !deeper && !startsBlock(lines, at)) {
        inner.push(line);
        at += 1;
      } else {
        break;
      }
    }
    const item = document.createElement("li");
    const parts = blocks(inner, depth + 1);
    // A single paragraph is the item itself.
    if (parts[0]?.nodeName === "P") {
      parts.splice(0, 1, ...parts[0].childNodes);
    }
    item.append(...parts);
    node.append(item);
    while (at + 1 < lines.length && lines[at].trim() === "" && ITEM.test(lines[at + 1])) {
      at += 1;
    }
  }
  return [node, at];
}

function blocks(lines, depth = 0) {
  if (depth > DEEPEST) {
    return [element("p", lines.join("\n"))];
  }
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = line.match(FENCE);
    const heading = line.match(/^(#{1,6})\s+(.*?)\s*#*$/);
    if (line.trim() === "") {
      at += 1;
    } else if (fence) {
      const inner = [];
      at += 1;
      while (at < lines.length && !lines[at].trimStart().startsWith(fence[1])) {
        inner.push(lines[at]);
        at += 1;
      }
      at += 1;
      nodes.push(codeBlock(inner, fence[2]));
    } else if (heading) {
      // The page has the headings above these.
      nodes.push(element(`h${Math.min(6, heading[1].length + 2)}`, ...inline(heading[2])));
      at += 1;
    } else if (RULE.test(line)) {
      nodes.push(document.createElement("hr"));
      at += 1;
    } else if (/^\s*>/.test(line)) {
      const inner = [];
      while (at < lines.length && /^\s*>/.test(lines[at])) {
        inner.push(lines[at].replace(/^\s*> ?/, ""));
        at += 1;
      }
      nodes.push(element("blockquote", ...blocks(inner, depth + 1)));
    } else if (ITEM.test(line)) {
      const [node, next] = list(lines, at, depth);
      nodes.push(node);
      at = next;
    } else if (isTable(lines, at)) {
      const rows = [];
      while (at < lines.length && lines[at].includes("|")) {
        rows.push(lines[at]);
        at += 1;
      }
      nodes.push(table(rows));
    } else {
      const inner = [line];
      at += 1;
      while (at < lines.length && lines[at].trim() !== "" && !startsBlock(lines, at)) {
        inner.push(lines[at]);
        at += 1;
      }
      const paragraph = document.createElement("p");
      inner.forEach((text, index) => {
        if (index > 0) {
          paragraph.append(/ {2,}$/.test(inner[index - 1]) ? document.createElement("br") : "\n");
        }
        paragraph.append(...inline(text.trim()));
      });
      nodes.push(paragraph);
    }
  }
  return nodes;
}

export function render(text) {
  return blocks(text.replaceAll("\r\n", "\n").split("\n"));
}
