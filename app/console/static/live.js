// Keeps the page up to date: every 15 s, unless the user types, selects or has filled in a form; focus and opened
// details stay as they are. Filters apply while they are changed; without scripts their button does it.
"use strict";
const EVERY_MS = 15000;
const TYPED_MS = 300;
const stale = document.getElementById("stale");
const live = document.getElementById("live");
let asked = 0;
let lost = "";

// Returns why the page must stay as it is; empty where it may be replaced.
function busy() {
  const at = document.activeElement;
  if (!getSelection().isCollapsed || (at && at.matches("input, select, textarea"))) return "while you type or select";
  const fields = [...document.querySelectorAll("main form:not(.find) input:not([type=hidden])")];
  return fields.some((field) => field.value !== field.defaultValue) ? "until you send or empty the form" : "";
}

function focused() {
  const at = document.activeElement;
  if (!at || at === document.body) return () => undefined;
  const same = (other) => other.tagName === at.tagName && other.getAttribute("href") === at.getAttribute("href")
    && other.getAttribute("aria-label") === at.getAttribute("aria-label");
  const order = [...document.querySelectorAll(at.tagName)].filter(same).indexOf(at);
  return () => [...document.querySelectorAll(at.tagName)].filter(same)[order]?.focus({ preventScroll: true });
}

function opened() {
  const name = (details) => details.id || details.querySelector("summary")?.textContent;
  const open = new Map([...document.querySelectorAll("details")].map((details) => [name(details), details.open]));
  return () => document.querySelectorAll("details").forEach((details) => {
    if (open.has(name(details))) details.open = open.get(name(details));
  });
}

// Parts that are laid out only near the window keep their height, or the page would jump under the reader.
function heights() {
  const many = () => [...document.querySelectorAll(".many")];
  const before = many().map((part) => part.offsetHeight);
  return () => many().forEach((part, at) => {
    if (before[at]) part.style.containIntrinsicHeight = `auto ${before[at]}px`;
  });
}

function status(word, isPaused) {
  live.textContent = word;
  document.body.classList.toggle("paused", isPaused);
}

// Fetches the page and replaces these parts of it; returns false if there was no answer.
async function load(address, parts, isWanted) {
  try {
    const answer = await fetch(address, { headers: { accept: "text/html" }, cache: "no-store", redirect: "manual" });
    // To the sign-in form: followed by the browser itself, so that the form can say that the session has ended.
    if (answer.type === "opaqueredirect") return location.reload();
    if (answer.status >= 500 || answer.status === 429) throw new Error(String(answer.status));
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!isWanted()) return;
    const restore = [heights(), focused(), opened()];
    for (const part of parts) {
      const [old, replacement] = [document.querySelector(part), next.querySelector(part)];
      if (old && replacement) old.replaceWith(replacement);
    }
    restore.forEach((again) => again());
    document.title = next.title;
    lost = stale.textContent = "";
    status("Live,", false);
    document.body.classList.remove("stale");
  } catch {
    lost ||= new Date().toLocaleTimeString("en-GB", { timeZone: document.getElementById("zone").value });
    stale.textContent = `No connection since ${lost}. This page is out of date. Retrying.`;
    status("As of", false);
    document.body.classList.add("stale");
  }
}

function refresh() {
  if (document.hidden || document.body.classList.contains("working") || document.querySelector("main[data-still]")) return;
  const why = busy();
  if (why) return status(`Paused ${why}, as of`, true);
  const order = ++asked;
  load(location.href, ["main", "#at", "#view"], () => order === asked && !busy());
}

function filter(form) {
  const fields = [...new FormData(form)].filter(([, value]) => value);
  const query = new URLSearchParams(fields).toString();
  history.replaceState(null, "", query ? `${form.getAttribute("action")}?${query}` : form.getAttribute("action"));
  const order = ++asked;
  load(location.href, ["#found", "#at", "#view"], () => order === asked);
}

// Takes what was just done out of the address, so that it is reported once, and not to others by the link.
function forgetDone() {
  const here = new URL(location.href);
  if (!here.searchParams.has("done")) return;
  here.searchParams.delete("done");
  here.searchParams.delete("gpu");
  history.replaceState(null, "", here);
}

// Says that an answer takes a while, from a click until the next page is there.
function work(event) {
  const slow = (event.submitter ?? event.target).closest("[data-slow]");
  if (!slow || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
  stale.textContent = slow.dataset.slow;
  document.body.classList.add("working");
}

function offerOwnZone() {
  const zone = document.getElementById("zone");
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (own && ![...zone.options].some((option) => option.value === own)) zone.add(new Option(own, own), 1);
  zone.addEventListener("change", () => zone.form.requestSubmit());
}

let typing;
document.documentElement.classList.add("scripted");
document.addEventListener("input", (event) => {
  const form = event.target.closest("form.find");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => filter(form), event.target.matches("select") ? 0 : TYPED_MS);
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form.find")) return;
  event.preventDefault();
  clearTimeout(typing);
  filter(event.target);
});
document.addEventListener("submit", work);
document.addEventListener("click", (event) => event.target.closest("a[data-slow]") && work(event));
addEventListener("pageshow", () => {
  if (document.body.classList.contains("working")) stale.textContent = "";
  document.body.classList.remove("working");
});
document.addEventListener("visibilitychange", refresh);
offerOwnZone();
forgetDone();
if (document.querySelector("main[data-still]")) status("As of", false);
else status("Live,", false);
setInterval(refresh, EVERY_MS);
