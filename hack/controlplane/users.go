package controlplane

// Who may log in: a token and a kubeconfig for each user.

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// account is a user with his token.
type account struct {
	User
	Token string
}

// newAccounts gives each user a token that can't be guessed.
func newAccounts(users []User) []account {
	accounts := make([]account, len(users))
	for i, u := range users {
		accounts[i] = account{User: u, Token: rand.Text()}
	}
	return accounts
}

// writeTokens writes the file that the API servers know the users from. Its columns:
// token, name, uid, groups.
func writeTokens(path string, accounts []account) error {
	var csv strings.Builder
	for _, a := range accounts {
		fmt.Fprintf(&csv, "%s,%s,%s,\"%s\"\n", a.Token, a.Name, a.Name, strings.Join(a.Groups, ","))
	}
	return os.WriteFile(path, []byte(csv.String()), 0o600)
}

// writeKubeconfig writes how one user reaches one API server.
func writeKubeconfig(path, url, caFile string, a account) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: controlplane
contexts:
- name: controlplane
  context: {cluster: controlplane, user: %[3]q}
clusters:
- name: controlplane
  cluster:
    server: %[1]s
    certificate-authority: %[2]q
users:
- name: %[3]q
  user: {token: %[4]s}
`, url, caFile, a.Name, a.Token)
	return os.WriteFile(path, []byte(content), 0o600)
}
