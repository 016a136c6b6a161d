// Reloads the page's content every 15 s, unless the user types or selects; the keyboard's focus stays where it is.
"use strict";
const EVERY_MS = 15000;
const stale = document.getElementById("stale");
const live = document.getElementById("live");

function busy() {
  const at = document.activeElement;
  return !getSelection().isCollapsed || (at && at.matches("input, select, textarea"));
}

function focused() {
  const at = document.activeElement;
  if (!at || at === document.body) return () => undefined;
  const same = (one) => one.tagName === at.tagName && one.getAttribute("href") === at.getAttribute("href")
    && one.getAttribute("aria-label") === at.getAttribute("aria-label");
  const order = [...document.querySelectorAll(at.tagName)].filter(same).indexOf(at);
  return () => [...document.querySelectorAll(at.tagName)].filter(same)[order]?.focus({ preventScroll: true });
}

async function refresh() {
  if (document.hidden) return;
  if (busy()) {
    live.textContent = "Paused while you type or select, as of";
    return;
  }
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.redirected) return location.assign(answer.url);
    if (!answer.ok) throw new Error(String(answer.status));
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (busy()) return;
    const restore = focused();
    for (const part of ["main", "#at"]) document.querySelector(part).replaceWith(next.querySelector(part));
    restore();
    document.title = next.title;
    stale.textContent = "";
    live.textContent = "Live,";
    document.body.classList.remove("stale");
  } catch {
    stale.textContent = "No connection: this page is out of date. Retrying.";
    live.textContent = "As of";
    document.body.classList.add("stale");
  }
}

live.textContent = "Live,";
setInterval(refresh, EVERY_MS);
