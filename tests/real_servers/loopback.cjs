// Preloaded into a Node server that would listen on every address: it listens on 127.0.0.1 alone, and its standard output
// is its port and nothing else.
const { Server } = require("node:net");

const listen = Server.prototype.listen;

Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => process.stdout.write(`${this.address().port}\n`));
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest.filter((each) => typeof each === "function"));
};
console.log = console.error;
