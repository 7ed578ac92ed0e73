package controlplane

// The command line of each component, and how to tell that it is ready.

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
)

// component describes a process that isn't started yet.
func (cp *ControlPlane) component(name, binary, address string, probe func(context.Context) error, args ...string) *Process {
	return &Process{
		Name:         name,
		Address:      address,
		Log:          cp.layout.log(name),
		command:      append([]string{filepath.Join(cp.binaries, binary)}, args...),
		dir:          cp.Dir,
		detached:     cp.options.Detached,
		readyTimeout: cp.options.ReadyTimeout,
		probe:        probe,
		changed:      cp.saveState,
	}
}

// etcd without fsync: its data needn't survive a crash of the machine. Its progress
// notices come every 5 s, as in kubeadm's clusters, so that the API servers' bookmarks
// are timely. Alone it needs no election; short terms make it leader at once.
func (cp *ControlPlane) etcd() (*Process, error) {
	client, err := cp.port()
	if err != nil {
		return nil, err
	}
	peer, err := cp.port()
	if err != nil {
		return nil, err
	}
	cp.EtcdURL = "http://" + local(client)
	return cp.component("etcd", etcdBinary, local(client), cp.probeURL(cp.EtcdURL+"/readyz"),
		"--name=default",
		"--data-dir="+cp.layout.etcdData(),
		"--listen-client-urls="+cp.EtcdURL,
		"--advertise-client-urls="+cp.EtcdURL,
		"--listen-peer-urls=http://"+local(peer),
		"--initial-advertise-peer-urls=http://"+local(peer),
		"--initial-cluster=default=http://"+local(peer),
		"--heartbeat-interval=10", "--election-timeout=100",
		"--unsafe-no-fsync",
		"--watch-progress-notify-interval=5s",
	), nil
}

// apiServer is number i of the API servers.
func (cp *ControlPlane) apiServer(i int) (*APIServer, error) {
	name := fmt.Sprintf("kube-apiserver-%d", i)
	port, err := cp.port()
	if err != nil {
		return nil, err
	}
	etcdURL, link, err := cp.wayToEtcd(i)
	if err != nil {
		return nil, fmt.Errorf("asking where %s finds etcd: %w", name, err)
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		// Without one, it looks for the machine's address, which may have none.
		"--advertise-address=127.0.0.1",
		// It would enter that address as the endpoint of the Service "kubernetes",
		// where no loopback address is allowed.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + cp.layout.servingCert(),
		"--tls-private-key-file=" + cp.layout.servingKey(),
		"--token-auth-file=" + cp.layout.tokens(),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.layout.serviceAccountKey(),
		"--service-account-signing-key-file=" + cp.layout.serviceAccountKey(),
		"--service-cluster-ip-range=10.0.0.0/24",
	}
	if !cp.options.ControllerManager {
		args = append(args, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	}
	if cp.options.APIServers > 1 {
		// Each names its identity lease after the host, which is the same for all here:
		// they would fight over it. The second feature depends on the first.
		args = append(args, "--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	}
	s := &APIServer{URL: "https://" + local(port), EtcdLink: link, layout: cp.layout, accounts: cp.accounts}
	if !cp.options.NoAudit {
		s.AuditLog = cp.layout.auditLog(name)
		args = append(args,
			"--audit-policy-file="+cp.layout.auditPolicy(),
			"--audit-log-path="+s.AuditLog,
			"--audit-log-maxsize=0") // one file: no rotation
	}
	args = append(args, cp.options.APIServerFlags...)
	s.Process = cp.component(name, apiServerBinary, local(port), cp.probeURL(s.URL+"/readyz"), args...)
	return s, nil
}

// wayToEtcd is where API server number i finds etcd, and the link that leads there, if
// there is one.
func (cp *ControlPlane) wayToEtcd(i int) (etcdURL string, link *EtcdLink, err error) {
	etcdURL = cp.EtcdURL
	if cp.options.EtcdFor != nil {
		etcdURL, err = cp.options.EtcdFor(i, etcdURL)
	}
	if err != nil || !cp.options.EtcdLinks {
		return etcdURL, nil, err
	}
	target, err := url.Parse(etcdURL)
	if err != nil {
		return "", nil, err
	}
	port, err := cp.port()
	if err != nil {
		return "", nil, err
	}
	if link, err = newEtcdLink(local(port), target.Host); err != nil {
		return "", nil, err
	}
	cp.links = append(cp.links, link)
	return "http://" + local(port), link, nil
}

// unhurried lifts the limits that clients set themselves: at its default of 20 requests
// a second the controller manager alone takes six seconds to start.
var unhurried = []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}

// controllerManager acts as a service account of its own for each of its
// controllers, so that the audit log tells them apart.
func (cp *ControlPlane) controllerManager() (*Process, error) {
	port, err := cp.port()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + cp.layout.kubeconfig(cp.APIServers[0].Name, controllerManagerUser),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.layout.servingCert(),
		"--tls-private-key-file=" + cp.layout.servingKey(),
		"--service-account-private-key-file=" + cp.layout.serviceAccountKey(),
		"--root-ca-file=" + cp.layout.caCert(),
		"--use-service-account-credentials",
		"--leader-elect=false",
	}, unhurried...)
	return cp.component("kube-controller-manager", controllerManagerBinary, local(port), cp.probeURL("https://"+local(port)+"/healthz"), args...), nil
}

func (cp *ControlPlane) scheduler() (*Process, error) {
	port, err := cp.port()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--kubeconfig=" + cp.layout.kubeconfig(cp.APIServers[0].Name, schedulerUser),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + cp.layout.servingCert(),
		"--tls-private-key-file=" + cp.layout.servingKey(),
		"--leader-elect=false",
	}, unhurried...)
	return cp.component("kube-scheduler", schedulerBinary, local(port), cp.probeURL("https://"+local(port)+"/readyz"), args...), nil
}

// kwok plays the kubelets of all nodes.
func (cp *ControlPlane) kwok() (*Process, error) {
	port, err := cp.port()
	if err != nil {
		return nil, err
	}
	stages, err := filepath.Glob(filepath.Join(cp.binaries, stagesFolder, "*.yaml"))
	if err != nil || len(stages) == 0 {
		return nil, fmt.Errorf("starting kwok: no rules in %s: build again, or copy that folder beside the binaries", filepath.Join(cp.binaries, stagesFolder))
	}
	args := []string{
		"--kubeconfig=" + cp.layout.kubeconfig(cp.APIServers[0].Name, kwokUser),
		"--manage-all-nodes",
		"--node-ip=127.0.0.1",
		"--node-lease-duration-seconds=40",
		"--cidr=10.128.0.0/9",
		"--server-address=" + local(port),
	}
	for _, stage := range stages {
		args = append(args, "--config="+stage)
	}
	return cp.component("kwok", kwokBinary, local(port), cp.probeURL("http://"+local(port)+"/readyz"), args...), nil
}

// probeURL asks url as Admin and takes any answer but 200 for "not ready".
func (cp *ControlPlane) probeURL(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		_, err := cp.request(ctx, http.MethodGet, url, nil)
		return err
	}
}
