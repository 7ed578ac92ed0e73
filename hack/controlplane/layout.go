package controlplane

// Where each file lies in a control plane's folder.

import (
	"fmt"
	"os"
	"path/filepath"
)

// layout is the folder of one control plane.
type layout string

func (l layout) path(elements ...string) string {
	return filepath.Join(append([]string{string(l)}, elements...)...)
}

func (l layout) state() string               { return l.path("controlplane.json") }
func (l layout) ownerLock() string           { return l.path("owner.lock") }
func (l layout) etcdData() string            { return l.path("etcd") }
func (l layout) log(component string) string { return l.path("logs", component+".log") }
func (l layout) tokens() string              { return l.path("tokens.csv") }
func (l layout) auditPolicy() string         { return l.path("audit-policy.json") }
func (l layout) auditLog(server string) string {
	return l.path("audit", server+".jsonl")
}
func (l layout) kubeconfig(server, user string) string {
	return l.path("kubeconfigs", server, fileName(user)+".kubeconfig")
}

// The keys and certificates.
func (l layout) caCert() string            { return l.path("pki", "ca.crt") }
func (l layout) servingCert() string       { return l.path("pki", "serving.crt") }
func (l layout) servingKey() string        { return l.path("pki", "serving.key") }
func (l layout) serviceAccountKey() string { return l.path("pki", "service-account.key") }

// temporaryPattern names temporary folders, so that leftovers are recognised.
const temporaryPattern = "warmpool-controlplane-run-*"

// makeFolder makes the folder of a new control plane: dir, or a temporary one.
func makeFolder(dir string) (layout, error) {
	if dir == "" {
		dir, err := os.MkdirTemp("", temporaryPattern)
		if err != nil {
			return "", fmt.Errorf("making the control plane's folder: %w", err)
		}
		return layout(dir), nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("making the control plane's folder: %w", err)
	}
	if _, err := os.Stat(layout(dir).state()); err == nil {
		return "", fmt.Errorf("%s: %w", dir, ErrAlreadyUp)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", fmt.Errorf("%s isn't empty: a control plane removes its whole folder in the end, so it wants one of its own", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the control plane's folder: %w", err)
	}
	return layout(dir), nil
}

// makeSubfolders makes the folders that the components write to.
func (l layout) makeSubfolders() error {
	for _, sub := range []string{"etcd", "logs", "pki", "audit"} {
		if err := os.Mkdir(l.path(sub), 0o700); err != nil {
			return err
		}
	}
	return nil
}
