// Makes the pages live. Without it they are complete, and as old as their last load.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const region = byId("region");
  const clock = byId("clock");
  const LOW = 0.2; // of the time a hold had: below it, it is about to end
  const TICK = 200; // ms: a bar moves smoothly, and costs next to nothing

  // -- times: the server's clock comes with every message, and is continued here between messages

  let ahead = 0; // seconds that the server's clock is ahead of ours
  const serverNow = () => Date.now() / 1000 + ahead;
  const setClock = (now) => { ahead = now - Date.now() / 1000; };
  if (clock) setClock(Number(clock.dataset.now));

  function span(seconds) {
    for (const [least, unit, size] of [[172800, "days", 86400], [7200, "h", 3600], [120, "min", 60]]) {
      if (seconds >= least) return `${(seconds / size).toFixed(0)} ${unit}`;
    }
    return `${Math.max(0, seconds).toFixed(1)} s`;
  }

  function tick() {
    const now = serverNow();
    if (clock) clock.textContent = `${new Date(now * 1000).toISOString().slice(11, 19)} UTC`;
    for (const each of document.querySelectorAll("[data-since]")) {
      each.textContent = span(now - Number(each.dataset.since));
    }
    for (const each of document.querySelectorAll("[data-ends]")) {
      const left = Number(each.dataset.ends) - now;
      const bar = each.querySelector("progress");
      each.querySelector(".word").textContent = left > 0 ? span(left) : "over";
      if (!bar) continue;
      const share = Math.min(1, Math.max(0, left / Number(each.dataset.full)));
      bar.value = share;
      each.dataset.level = left <= 0 ? "over" : share < LOW ? "low" : "ok";
    }
  }

  // -- the live region

  const button = byId("live");
  let source = null;
  let waiting = null; // an update that arrived while the reader was selecting text

  function state(name, word) {
    button.dataset.state = name;
    button.querySelector(".word").textContent = word;
    byId("away").hidden = name !== "away";
  }

  function selecting() {
    const selected = document.getSelection();
    return selected && !selected.isCollapsed && region.contains(selected.anchorNode);
  }

  function put(html) {
    if (selecting()) { waiting = html; return; }
    waiting = null;
    const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
    const known = new Set([...region.querySelectorAll(".cards tr[data-key]")].map((row) => row.dataset.key));
    const open = new Set([...region.querySelectorAll("details[id][open]")].map((each) => each.id));
    const kept = new Map([...region.querySelectorAll("[data-keep]")].map((each) => [each.dataset.keep, each]));
    region.innerHTML = html;
    for (const each of region.querySelectorAll("[data-keep]")) {
      if (kept.has(each.dataset.keep)) each.replaceWith(kept.get(each.dataset.keep));
    }
    if (known.size) {
      for (const row of region.querySelectorAll(".cards tr[data-key]")) {
        if (!known.has(row.dataset.key)) row.classList.add("fresh");
      }
    }
    for (const each of region.querySelectorAll("details[id]")) if (open.has(each.id)) each.open = true;
    if (focused) byId(focused)?.focus({ preventScroll: true });
    tick();
    draw();
  }

  function follow() {
    source = new EventSource(region.dataset.live);
    source.addEventListener("open", () => state("live", "Live"));
    source.addEventListener("error", () => {
      state("waiting", "Reconnecting");
      if (source.readyState === EventSource.CLOSED) setTimeout(again, 2000); // refused: logged out, or too many
    });
    source.addEventListener("region", (message) => {
      const { now, html } = JSON.parse(message.data);
      setClock(now);
      state("live", "Live");
      put(html);
    });
    source.addEventListener("away", (message) => {
      setClock(JSON.parse(message.data).now);
      state("away", "Store unavailable");
    });
  }

  function again() {
    if (source && source.readyState === EventSource.CLOSED) follow();
  }

  function rest() {
    source.close();
    source = null;
    state("paused", "Paused");
  }

  if (region && button) {
    button.hidden = false;
    button.setAttribute("aria-label", "Live updates");
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!on));
      if (on) rest(); else follow();
    });
    document.addEventListener("selectionchange", () => { if (waiting !== null && !selecting()) put(waiting); });
    follow();
  }
  if (location.search.includes("note=")) { // shown once: not again on reload, and not in a shared link
    const here = new URL(location.href);
    here.searchParams.delete("note");
    history.replaceState(null, "", here);
  }

  for (const each of document.querySelectorAll(".scripted:not(button)")) each.hidden = false;

  // -- filters: an address has only what was chosen, so that it can be read and shared

  document.addEventListener("submit", (submit) => {
    if (!submit.target.matches(".finder")) return;
    const empty = [...submit.target.elements].filter((each) => each.name && !each.value);
    for (const each of empty) each.disabled = true;
    setTimeout(() => { for (const each of empty) each.disabled = false; }); // for whoever comes back to this page
  });

  // -- confirmation: the page with the form is shown in a dialog

  const dialog = byId("dialog");
  document.addEventListener("click", async (click) => {
    const link = click.target.closest("a[data-dialog], a[data-close]");
    if (!link || click.metaKey || click.ctrlKey || click.shiftKey || click.button) return;
    if (link.matches("[data-close]")) {
      if (dialog.open) { click.preventDefault(); dialog.close(); }
      return;
    }
    click.preventDefault();
    const answer = await fetch(link.href, { headers: { accept: "text/html" } });
    const form = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("asked");
    if (!form) { location.assign(link.href); return; }
    dialog.replaceChildren(form);
    if (!dialog.open) dialog.showModal(); // open already, if one form leads to another
    form.querySelector("[autofocus]")?.focus();
  });
  document.addEventListener("keydown", (key) => {
    const writing = key.target.closest("input, textarea, dialog");
    if (key.key === "/" && !writing && !key.ctrlKey && !key.metaKey && !key.altKey) {
      key.preventDefault();
      byId("search")?.focus();
    }
    if (key.key === " " && key.target.matches("a[role=button]")) { key.preventDefault(); key.target.click(); }
  });

  // -- colors

  const theme = byId("theme");
  const THEMES = { "": ["Auto", "as the system"], light: ["Light", "light"], dark: ["Dark", "dark"] };
  function colour() {
    const chosen = document.documentElement.dataset.theme || "";
    theme.textContent = THEMES[chosen][0];
    theme.setAttribute("aria-label", `Colors: ${THEMES[chosen][1]}`);
  }
  if (theme) {
    theme.hidden = false;
    theme.addEventListener("click", () => {
      const order = Object.keys(THEMES);
      const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % order.length];
      if (next) document.documentElement.dataset.theme = next; else delete document.documentElement.dataset.theme;
      try { localStorage.setItem("solely-theme", next); } catch { /* for this page only */ }
      colour();
      redraw();
    });
    colour();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());

  // -- charts, on pages that have some: see charts.js

  const draw = () => window.charts?.draw();
  const redraw = () => window.charts?.redraw();
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 150); });

  document.querySelector(".side [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  tick();
  draw();
  setInterval(tick, TICK);
})();
