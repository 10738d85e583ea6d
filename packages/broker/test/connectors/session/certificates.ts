import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A private authority and a server's certificate by it, for these names; made by openssl in the directory of a cluster. */
export function makeCertificates(cluster: string, names: string): { authority: string; settings: string[] } {
  const at = (file: string) => join(cluster, file);
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: cluster, stdio: 'pipe' });
  const fresh = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  openssl('req', '-x509', ...fresh, '-keyout', 'ca.key', '-out', 'ca.crt', '-subj', '/CN=Test authority');
  openssl('req', ...fresh.slice(0, -2), '-keyout', 'server.key', '-out', 'server.csr', '-subj', '/CN=server');
  writeFileSync(at('server.ext'), `subjectAltName=${names}\n`);
  const sign = [
    '-CA',
    'ca.crt',
    '-CAkey',
    'ca.key',
    '-CAcreateserial',
    '-days',
    '2',
    '-extfile',
    'server.ext',
  ];
  openssl('x509', '-req', '-in', 'server.csr', ...sign, '-out', 'server.crt');
  const { uid, gid } = statSync(cluster);
  for (const file of ['server.key', 'server.crt']) {
    chownSync(at(file), uid, gid);
    chmodSync(at(file), 0o600);
  }
  return {
    authority: readFileSync(at('ca.crt'), 'utf8'),
    settings: ["ssl_cert_file = 'server.crt'", "ssl_key_file = 'server.key'", 'ssl = on'],
  };
}
