package controlplane

// Keys and certificates: one authority, one serving certificate for everything on
// 127.0.0.1, one key that signs the tokens of service accounts.

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// certificateLifetime is that of a control plane that was left running for long.
const certificateLifetime = 365 * 24 * time.Hour

// writeCertificates fills the files of keys and certificates.
func writeCertificates(l layout) error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the authority's key: %w", err)
	}
	authority := template("warmpool-controlplane")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := writeCertificate(l.caCert(), authority, authority, authorityKey, authorityKey); err != nil {
		return err
	}

	servingKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the serving key: %w", err)
	}
	serving := template("kube-apiserver")
	serving.KeyUsage = x509.KeyUsageDigitalSignature
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	serving.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if err := writeCertificate(l.servingCert(), serving, authority, servingKey, authorityKey); err != nil {
		return err
	}
	if err := writeKey(l.servingKey(), servingKey); err != nil {
		return err
	}

	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the service accounts' key: %w", err)
	}
	return writeKey(l.serviceAccountKey(), accountKey)
}

// template is what all certificates here have in common. They are valid a little
// early, for clocks that were set back.
func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certificateLifetime),
	}
}

func writeCertificate(path string, cert, issuer *x509.Certificate, key, issuerKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", cert.Subject.CommonName, err)
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key for %s: %w", path, err)
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
