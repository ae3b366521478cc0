// What this browser keeps: conversations, settings, the key if asked to. Nothing of it goes to the
// server but what a request needs.

const CHATS = "strata.chats";
const SETTINGS = "strata.settings";
const KEY = "strata.key";
const THEME = "strata.theme";
const MOST_CHATS = 200;

function read(name, otherwise) {
  try {
    const value = JSON.parse(localStorage.getItem(name));
    return value ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Whether it could be kept: a browser may be full, or keep nothing in private windows.
function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

function isChat(chat) {
  return chat && typeof chat.id === "string" && Array.isArray(chat.messages);
}

export function chats() {
  const all = read(CHATS, []);
  return Array.isArray(all) ? all.filter(isChat) : [];
}

// The oldest go when there are too many or too much.
export function keepChats(all) {
  let kept = all.slice(0, MOST_CHATS);
  while (!write(CHATS, kept) && kept.length > 1) {
    kept = kept.slice(0, Math.ceil(kept.length / 2));
  }
  return kept;
}

export const settings = () => read(SETTINGS, {});
export const keepSettings = (value) => write(SETTINGS, value);
export const theme = () => read(THEME, null);
export const keepTheme = (value) => write(THEME, value);

export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function keepKey(value, forLong) {
  try {
    sessionStorage.setItem(KEY, value);
    if (forLong) {
      localStorage.setItem(KEY, value);
    } else {
      localStorage.removeItem(KEY);
    }
  } catch {
    // It then lasts as long as the page.
  }
}
