// Makes the pages live. Without it they are complete, and as old as their last load.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const region = byId("region");
  const clock = byId("clock");
  const LOW = 0.2; // of the time a hold had: below it, it is about to end
  const TICK = 200; // ms: a bar moves smoothly, and costs next to nothing

  // -- times: the server's clock comes with every update, and is continued here between updates

  let ahead = 0; // seconds that the server's clock is ahead of ours
  const serverNow = () => Date.now() / 1000 + ahead;
  if (clock) ahead = Number(clock.dataset.now) - Date.now() / 1000;

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

  const GRACE = 3000; // ms that a hidden page is still followed: readers switch to another tab and back
  const HELD = 5000; // ms that a pressed button delays updates at most; releasing a scroll bar is not reported
  const SETTLE = 150; // ms after the release: the click is reported after it
  const FRESH = 2000; // ms that a new row is marked, as long as its animation
  const WORDS = {
    live: "Live", waiting: "Reconnecting", away: "Store unavailable",
    crowded: "Too many tabs", held: "Held", paused: "Paused",
  };
  const button = byId("live");
  let stop = null; // ends following, if this page is followed
  let leaving = 0;
  let waiting = null; // an update that arrived while the reader was pressing a button, or selecting text
  let pressing = 0;

  function show(state) {
    button.dataset.state = state;
    button.querySelector(".word").textContent = WORDS[state];
    byId("away").hidden = state !== "away";
  }

  function selecting() {
    const selected = document.getSelection();
    return selected && !selected.isCollapsed && region.contains(selected.anchorNode);
  }

  function receive({ state, ahead: offset, html }) {
    if (offset !== undefined) ahead = offset;
    show(state);
    if (html !== undefined) { waiting = html; update(); }
  }

  function update() {
    if (waiting === null || pressing) return;
    if (selecting()) { show("held"); return; }
    if (button.dataset.state === "held") show("live");
    put(waiting);
    waiting = null;
  }

  function put(html) {
    const known = new Set([...region.querySelectorAll(".cards tr[data-key]")].map((row) => row.dataset.key));
    window.morph(region, html);
    if (known.size) {
      for (const row of region.querySelectorAll(".cards tr[data-key]")) {
        if (known.has(row.dataset.key)) continue;
        row.dataset.fresh = "";
        setTimeout(() => { delete row.dataset.fresh; }, FRESH);
      }
    }
    tick();
    draw();
  }

  const releaseIn = (ms) => {
    clearTimeout(pressing);
    pressing = setTimeout(() => { pressing = 0; update(); }, ms);
  };

  function follow() {
    clearTimeout(leaving);
    if (stop || document.hidden || button.getAttribute("aria-pressed") !== "true") return;
    stop = window.followLive(region.dataset.live, receive);
  }

  function rest() {
    stop?.();
    stop = null;
  }

  if (region && button) {
    button.hidden = false;
    button.setAttribute("aria-label", "Live updates");
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!on));
      if (on) { rest(); waiting = null; show("paused"); } else follow();
    });
    addEventListener("pointerdown", () => releaseIn(HELD), true);
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => releaseIn(SETTLE), true);
    document.addEventListener("selectionchange", update);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) leaving = setTimeout(rest, GRACE); else follow();
    });
    addEventListener("pagehide", rest);
    addEventListener("pageshow", follow);
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
