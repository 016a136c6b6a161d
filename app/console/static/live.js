// Reloads the page's content every 15 s, unless the user is interacting with it.
"use strict";
const EVERY_MS = 15000;
const stale = document.getElementById("stale");
let failing = false;

function busy() {
  const at = document.activeElement;
  return document.hidden || !getSelection().isCollapsed || (at && at !== document.body);
}

async function refresh() {
  if (busy()) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.redirected) return location.assign(answer.url);
    if (!answer.ok) throw new Error(String(answer.status));
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (busy()) return;
    for (const part of ["main", "header time"]) document.querySelector(part).replaceWith(next.querySelector(part));
    document.title = next.title;
    if (failing) stale.textContent = "";
    failing = false;
  } catch {
    if (!failing) stale.textContent = "The server does not answer: this page is out of date.";
    failing = true;
  }
}

document.getElementById("live").textContent = "Live,";
setInterval(refresh, EVERY_MS);
