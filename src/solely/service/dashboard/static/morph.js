// Changes the content of an element to given HTML, and keeps what is there already: so focus, selection, scroll positions,
// hover, opened details and the target of a click stay. Elements are the same if they have the same name and the same id,
// `data-key` or other mark; what has none is matched in order. What has `data-keep` is not changed at all.
"use strict";
(() => {
  const MARKS = ["id", "data-key", "data-keep", "data-for", "aria-labelledby"];
  const OURS = new Set(["open", "data-fresh", "data-level"]); // attributes that readers and scripts set, never the server
  const name = (node) => {
    if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
    const mark = MARKS.find((each) => node.hasAttribute(each));
    return mark ? `${node.nodeName} ${mark}=${node.getAttribute(mark)}` : node.nodeName;
  };

  function attributes(element, wanted) {
    for (const { name: each, value } of wanted.attributes) {
      if (!OURS.has(each) && element.getAttribute(each) !== value) element.setAttribute(each, value);
    }
    for (const { name: each } of [...element.attributes]) {
      if (!OURS.has(each) && !wanted.hasAttribute(each)) element.removeAttribute(each);
    }
  }

  // For each wanted node the one that is there already, if there is one. Each is used once.
  function matched(parent, wanted) {
    const known = new Map();
    for (const each of parent.childNodes) {
      const key = name(each);
      if (!known.has(key)) known.set(key, []);
      known.get(key).push(each);
    }
    for (const each of known.values()) each.reverse();
    return wanted.map((each) => known.get(name(each))?.pop());
  }

  function children(parent, wanted) {
    const matches = matched(parent, wanted);
    const kept = new Set(matches);
    for (const each of [...parent.childNodes]) if (!kept.has(each)) each.remove();
    const move = parent.moveBefore ?? parent.insertBefore; // the former keeps focus and scroll positions
    let place = parent.firstChild;
    wanted.forEach((each, index) => {
      const match = matches[index];
      if (!match) {
        parent.insertBefore(each, place);
      } else {
        if (match === place) place = place.nextSibling;
        else move.call(parent, match, place);
        change(match, each);
      }
    });
  }

  function change(node, wanted) {
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.nodeValue !== wanted.nodeValue) node.nodeValue = wanted.nodeValue;
    } else if (!node.hasAttribute("data-keep")) {
      attributes(node, wanted);
      children(node, [...wanted.childNodes]);
    }
  }

  window.morph = (element, html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    children(element, [...template.content.childNodes]);
    if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  };
})();
