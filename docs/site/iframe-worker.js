// A browser starts no worker for a page that was opened from disk. The search then runs in a hidden frame.
// The plugin `offline` would load such a script from the network, unless one of this name is given in mkdocs.yml.
if (location.protocol === "file:") {
  self.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      document.body.append(this.frame);
      const inside = this.frame.contentDocument;
      inside.open();
      this.frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.write(`<script src="${new URL(url, location.href)}"></script>`);
      inside.close();
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
