package controlplane

// A control plane from start to stop, in the order in which things happen.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrAlreadyUp is what Start answers when its folder already holds a control plane.
var ErrAlreadyUp = errors.New("a control plane is already up in this folder, or was not taken down: take it down first")

// ControlPlane is a running control plane. Its fields are set by Start or Attach and
// never change; its methods are safe for concurrent use.
type ControlPlane struct {
	// Dir is the folder that holds all its files.
	Dir string
	// EtcdURL is where etcd serves clients, without TLS.
	EtcdURL string
	// CA is the certificate, in PEM, that the API servers' certificates are checked
	// against; CAFile is its file.
	CA     []byte
	CAFile string
	// ServingCertFile and ServingKeyFile are valid for 127.0.0.1 and localhost: a proxy
	// in front of an API server can use them, and its clients need no other CA.
	ServingCertFile, ServingKeyFile string

	// The components. Nil: not asked for. There is at least one API server.
	Etcd              *Process
	APIServers        []*APIServer
	ControllerManager *Process
	Scheduler         *Process
	Kwok              *Process

	options  Options
	layout   layout
	binaries string
	accounts []account // Admin first
	client   *http.Client
	attached bool
	links    []*EtcdLink
	owner    *os.File // locked while this program lives and hasn't called Stop

	mu    sync.Mutex // guards the state file, and:
	ports []int
	ready bool
}

// APIServer is one kube-apiserver.
type APIServer struct {
	*Process
	// URL is where it serves, with TLS.
	URL string
	// EtcdLink is its way to etcd. Nil: not asked for, or another program's.
	EtcdLink *EtcdLink
	// AuditLog is the file of its audit log, one JSON object a line. Empty: off.
	AuditLog string
	audit    auditReader

	layout   layout
	accounts []account
}

// Kubeconfig returns the path of a kubeconfig with which user, Admin for example,
// logs in at this API server.
func (s *APIServer) Kubeconfig(user string) (string, error) {
	if _, err := find(s.accounts, user); err != nil {
		return "", err
	}
	return s.layout.kubeconfig(s.Name, user), nil
}

// Kubeconfig returns the path of a kubeconfig with which user logs in at the first
// API server. For another one ask that: cp.APIServers[1].Kubeconfig(user).
func (cp *ControlPlane) Kubeconfig(user string) (string, error) {
	return cp.APIServers[0].Kubeconfig(user)
}

// URL is where the first API server serves.
func (cp *ControlPlane) URL() string { return cp.APIServers[0].URL }

// Token returns the bearer token of user, the same at each API server.
func (cp *ControlPlane) Token(user string) (string, error) {
	a, err := find(cp.accounts, user)
	return a.Token, err
}

// Kubectl is the path of kubectl at the API servers' own version.
func (cp *ControlPlane) Kubectl() string { return filepath.Join(cp.binaries, kubectlBinary) }

// Processes are all components, in the order of their start.
func (cp *ControlPlane) Processes() []*Process {
	all := []*Process{cp.Etcd}
	for _, s := range cp.APIServers {
		all = append(all, s.Process)
	}
	all = append(all, cp.ControllerManager, cp.Scheduler, cp.Kwok)
	return slices.DeleteFunc(all, func(p *Process) bool { return p == nil })
}

// LogTails returns the last n lines of each component's log, under its name.
func (cp *ControlPlane) LogTails(n int) string {
	var all strings.Builder
	for _, p := range cp.Processes() {
		fmt.Fprintf(&all, "--- %s (%s), the end of %s:\n%s\n", p.Name, p.State(), p.Log, indent(p.LogTail(n)))
	}
	return all.String()
}

func find(accounts []account, user string) (account, error) {
	for _, a := range accounts {
		if a.Name == user {
			return a, nil
		}
	}
	return account{}, fmt.Errorf("the control plane has no user %q: name it in Options.Users", user)
}

// Start starts a control plane and returns when it is ready: the API servers answer,
// and, where they were asked for, nodes are Ready and Pods will run. Whoever calls it
// calls Stop in the end. After an error nothing is left, and the error quotes the
// end of the log of the component that failed. ctx bounds the start, not what is
// started.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	binaries := options.Binaries
	if binaries == "" {
		var err error
		if binaries, err = Build(ctx, options.Progress); err != nil {
			return nil, err
		}
	}
	if options.Dir == "" {
		sweep()
	}
	folder, err := makeFolder(options.Dir)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{Dir: string(folder), options: options, layout: folder, binaries: binaries}
	if err := cp.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), cp.Stop())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	begun := time.Now()
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"keys and users", cp.prepare},
		{"etcd", cp.startEtcd},
		{"kube-apiserver", cp.startAPIServers},
		{"the other components", cp.startOthers},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return err
		}
		fmt.Fprintf(cp.options.Progress, "  %5.1fs  %s ready\n", time.Since(begun).Seconds(), step.what)
	}
	cp.mu.Lock()
	cp.ready = true
	cp.mu.Unlock()
	return cp.saveState()
}

// prepare writes all files that the components read, but for the kubeconfigs, which
// need the ports.
func (cp *ControlPlane) prepare(context.Context) error {
	var err error
	if cp.owner, err = tryLock(cp.layout.ownerLock()); err != nil {
		return err
	}
	if err := cp.saveState(); err != nil { // early, so that leftovers are recognised
		return err
	}
	if err := cp.layout.makeSubfolders(); err != nil {
		return err
	}
	if err := writeCertificates(cp.layout); err != nil {
		return err
	}
	cp.accounts = newAccounts(slices.Concat(predefinedUsers(), cp.options.Users))
	if err := writeTokens(cp.layout.tokens(), cp.accounts); err != nil {
		return err
	}
	if err := os.WriteFile(cp.layout.auditPolicy(), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	return cp.trust()
}

// trust sets what follows from the certificates in the folder.
func (cp *ControlPlane) trust() error {
	ca, err := os.ReadFile(cp.layout.caCert())
	if err != nil {
		return err
	}
	cp.CA, cp.CAFile = ca, cp.layout.caCert()
	cp.ServingCertFile, cp.ServingKeyFile = cp.layout.servingCert(), cp.layout.servingKey()
	cp.client, err = newClient(ca)
	return err
}

func (cp *ControlPlane) startEtcd(ctx context.Context) error {
	var err error
	if cp.Etcd, err = cp.etcd(); err != nil {
		return err
	}
	return startAll(ctx, cp.Etcd)
}

func (cp *ControlPlane) startAPIServers(ctx context.Context) error {
	var processes []*Process
	for i := range cp.options.APIServers {
		s, err := cp.apiServer(i)
		if err != nil {
			return err
		}
		for _, a := range cp.accounts {
			if err := writeKubeconfig(cp.layout.kubeconfig(s.Name, a.Name), s.URL, cp.layout.caCert(), a); err != nil {
				return err
			}
		}
		cp.APIServers = append(cp.APIServers, s)
		processes = append(processes, s.Process)
	}
	return startAll(ctx, processes...)
}

// startOthers starts all the rest at once: none of it waits for another.
func (cp *ControlPlane) startOthers(ctx context.Context) error {
	var processes []*Process
	for _, c := range []struct {
		wanted   bool
		describe func() (*Process, error)
		field    **Process
	}{
		{cp.options.ControllerManager, cp.controllerManager, &cp.ControllerManager},
		{cp.options.Scheduler, cp.scheduler, &cp.Scheduler},
		{cp.options.Nodes > 0, cp.kwok, &cp.Kwok},
	} {
		if !c.wanted {
			continue
		}
		p, err := c.describe()
		if err != nil {
			return err
		}
		*c.field = p
		processes = append(processes, p)
	}
	if err := cp.createNodes(ctx); err != nil {
		return err
	}
	if err := startAll(ctx, processes...); err != nil {
		return err
	}
	return cp.waitUsable(ctx)
}

// startAll starts processes side by side and waits until each is ready.
func startAll(ctx context.Context, processes ...*Process) error {
	for _, p := range processes {
		if err := p.start(); err != nil {
			return err
		}
	}
	for _, p := range processes {
		if err := p.waitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// port takes a port for as long as the control plane lives.
func (cp *ControlPlane) port() (int, error) {
	port, err := takePort()
	if err != nil {
		return 0, err
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.ports = append(cp.ports, port)
	return port, nil
}

// Stop ends every component, removes the folder and returns when all is gone. A
// second call does nothing; nor does a call on a control plane that was attached to,
// which goes on for the others.
func (cp *ControlPlane) Stop() error {
	if cp.attached {
		return nil
	}
	var errs []error
	for _, p := range slices.Backward(cp.Processes()) {
		errs = append(errs, p.Kill()) // nothing is kept, so nothing needs an orderly end
	}
	for _, link := range cp.links {
		link.close()
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, port := range cp.ports {
		releasePort(port)
	}
	cp.ports = nil
	errs = append(errs, os.RemoveAll(cp.Dir))
	_ = cp.owner.Close() // nil or closed before: nothing to do
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping the control plane: %w", err)
	}
	return nil
}
