// A provider on loopback for tests: anna is of the group platform, bert of guests, cora of both tenants' teams, dora of admins.
import { createServer } from 'node:http'
import { Provider } from 'oidc-provider'

const [port, returnAddress] = process.argv.slice(2)
const groups = { anna: ['staff', 'platform'], bert: ['guests'], cora: ['team-shop', 'team-media'], dora: ['admins'] }
const issuer = `http://127.0.0.1:${port}`
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'console', client_secret: 'a secret: of/the console', redirect_uris: [returnAddress],
      grant_types: ['authorization_code'], response_types: ['code'],
    },
    {
      client_id: 'command-line', token_endpoint_auth_method: 'none', redirect_uris: [], response_types: [],
      grant_types: ['urn:ietf:params:oauth:grant-type:device_code'],
    },
  ],
  claims: { openid: ['sub'], email: ['email'], groups: ['groups'] },
  scopes: ['openid', 'email', 'groups'],
  conformIdTokenClaims: process.env.GROUPS_APART === '1',  // then the userinfo endpoint alone tells them
  features: { devInteractions: { enabled: true }, deviceFlow: { enabled: true } },
  pkce: { required: () => true },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.com`, groups: groups[id] ?? [] }),
  }),
  jwks: undefined,
})
createServer(provider.callback()).listen(Number(port), '127.0.0.1', () => console.log('ready'))
