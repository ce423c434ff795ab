// Loaded before an example server whose port is written into it: makes it listen on LISTEN_PORT of loopback.
import net from "node:net";

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  return typeof port === "number"
    ? listen.call(this, Number(process.env.LISTEN_PORT), "127.0.0.1", ...rest)
    : listen.call(this, port, ...rest);
};
