// Follows live pages. One stream serves all tabs of a browser, since it opens at most six connections of HTTP/1.1 to a host,
// and a tab that waits for a seventh never loads. A shared worker runs this file and has the stream; a page runs it too, and
// follows through the worker, or with a stream of its own where there are no workers.
"use strict";
(() => {
  const AGAIN = 2000; // ms until a stream that was refused is opened again: logged out, or too many
  const MOST_AGAIN = 30000; // ms at most, since the time doubles: refusals are logged
  const LINGER = 2000; // ms that a page is followed after its last tab left: it is up to date if it is loaded anew
  const BEAT = 5000; // ms between two signs of life of a tab, which the worker answers
  const MISSED = 3; // of them, after which the other one is gone: a tab may crash, and so may the worker
  const MOST = 20; // pages of a stream, as many as the server accepts
  const LONGEST = 7000; // characters of its address: proxies accept 8 KiB

  // -- the stream: of all pages that are followed here

  const pages = new Map(); // address → what was received last, and who is to be told
  let source = null;
  let streamed = []; // addresses, in the order in which the stream numbers them
  let timer = 0;
  let due = Infinity;
  let again = AGAIN;

  function follow(address, tell) {
    const page = pages.get(address) ?? { followers: new Set(), lines: [], state: "", ahead: 0 };
    pages.delete(address);
    pages.set(address, page); // the newest are the last
    page.followers.add(tell);
    if (page.lines.length) tell(withRegion(page));
    openIn(0);
  }

  function leave(address, tell) {
    pages.get(address)?.followers.delete(tell);
    openIn(LINGER);
  }

  function openIn(ms) {
    if (performance.now() + ms >= due) return;
    clearTimeout(timer);
    due = performance.now() + ms;
    timer = setTimeout(open, ms);
  }

  const withRegion = (page) => ({ state: page.state, ahead: page.ahead, html: page.lines.join("\n") });

  function tellAll(page, message) {
    page.state = message.state;
    for (const tell of page.followers) tell(message);
  }

  // The newest pages that one stream can have.
  function fitting() {
    let length = 0;
    const newest = [...pages.keys()].reverse().slice(0, MOST);
    const kept = newest.filter((each, place) => (length += encodeURIComponent(each).length) <= LONGEST || place === 0);
    return kept.sort();
  }

  function open() {
    due = Infinity;
    for (const [address, page] of pages) if (!page.followers.size) pages.delete(address);
    const wanted = fitting();
    for (const [address, page] of pages) if (!wanted.includes(address)) tellAll(page, { state: "crowded" });
    const same = wanted.length === streamed.length && wanted.every((each, place) => each === streamed[place]);
    if (same && source?.readyState !== EventSource.CLOSED) return;
    source?.close();
    source = null;
    streamed = wanted;
    if (wanted.length) listen();
  }

  function listen() {
    source = new EventSource(`/live?${new URLSearchParams(streamed.map((each) => ["page", each]))}`);
    const every = (state) => { for (const each of streamed) if (pages.has(each)) tellAll(pages.get(each), { state }); };
    source.addEventListener("open", () => {
      again = AGAIN;
      every("live");
    });
    source.addEventListener("error", () => {
      every("waiting");
      if (source.readyState !== EventSource.CLOSED) return; // otherwise the browser itself connects again
      openIn(again);
      again = Math.min(2 * again, MOST_AGAIN);
    });
    for (const kind of ["region", "away", "refused"]) {
      source.addEventListener(kind, (event) => receive(kind, JSON.parse(event.data)));
    }
  }

  function receive(kind, { page: number, now, lines }) {
    const page = pages.get(streamed[number]);
    if (!page) return;
    if (lines) page.lines = lines.flatMap((each) => (typeof each === "string" ? [each] : page.lines.slice(...each)));
    page.state = { region: "live", away: "away", refused: "waiting" }[kind];
    page.ahead = now - Date.now() / 1000;
    tellAll(page, lines ? withRegion(page) : { state: page.state, ahead: page.ahead });
  }

  // -- the worker: its tabs send the address that they follow, or null, again and again

  if ("SharedWorkerGlobalScope" in self) {
    const tabs = new Set();
    const hear = (tab, address) => {
      tab.missed = 0;
      tabs.add(tab);
      if (address !== tab.address) {
        if (tab.address !== null) leave(tab.address, tab.tell);
        tab.address = address;
        if (address !== null) follow(address, tab.tell);
      }
      if (address === null) tabs.delete(tab);
    };
    self.addEventListener("connect", ({ ports: [port] }) => {
      const tab = { address: null, missed: 0, tell: (message) => port.postMessage(message) };
      port.onmessage = ({ data }) => {
        hear(tab, data);
        port.postMessage({});
      };
    });
    setInterval(() => { for (const tab of tabs) if (tab.missed++ >= MISSED) hear(tab, null); }, BEAT);
    return;
  }

  // -- the page

  const script = document.currentScript.src;

  function throughWorker(address, tell, lost) {
    const worker = new SharedWorker(script, "solely");
    const { port } = worker;
    let missed = 0;
    const stop = () => {
      clearInterval(beating);
      port.postMessage(null);
      port.close();
    };
    const giveUp = () => { stop(); lost(); };
    const beat = () => { if (missed++ < MISSED) port.postMessage(address); else giveUp(); };
    worker.onerror = giveUp;
    port.onmessage = ({ data }) => {
      missed = 0;
      if (data.state) tell(data);
    };
    const beating = setInterval(beat, BEAT);
    beat();
    return stop;
  }

  function alone(address, tell) {
    follow(address, tell);
    return () => leave(address, tell);
  }

  // Follows the page: `tell` gets its state and HTML whenever they change. Returns a function that ends it.
  self.followLive = (address, tell) => {
    let stop;
    const begin = (workers) => {
      try {
        if (!workers) throw new Error("a stream of its own");
        stop = throughWorker(address, tell, () => begin(workers - 1)); // the next one is new, if this one has crashed
      } catch {
        stop = alone(address, tell);
      }
    };
    begin("SharedWorker" in self ? 2 : 0);
    return () => stop();
  };
})();
